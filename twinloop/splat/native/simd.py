"""C++ text that the native kernels share: vectors, tiles and blocks, outlines, depth order, bins.

Warp compiles it with the clang that it carries, so that no compiler is needed on the user's
machine; there are no C or C++ headers, only `__builtin_*`. Put `SOURCE` once before the text of a
kernel module: ``wp.ModuleBuildOptions(extra_cpu_preamble=simd.SOURCE + ...)``.

An image is cut into tiles of 16 x 16 pixels and a tile into blocks of 4 x 2 pixels, one block being
one vector of eight floats (of 4 x 4 and sixteen on AVX-512). The compiler lowers the same text to
AVX-512, AVX2, SSE or NEON. What a splat touches is an ellipse, its `Outline`: bins and block masks
come from the ellipse's extent in each band of rows, exactly but for a margin of 0.01 px.

The centre of pixel i is at i + 0.5, as in gsplat.
"""

TILE = 16
"""Tile side, px."""
MOST_ENTRIES = 2**28
"""List entries (splat in a tile) allowed in one image: 1 GiB of lists, 12 GiB of gradients."""

SOURCE = r"""
#pragma clang fp contract(fast)  // a * b + c in one instruction, where the machine has it
namespace twinloop {

#define TL_INLINE static inline __attribute__((always_inline))
#define TL_INLINE_MEMBER inline __attribute__((always_inline))
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
constexpr int kTile = 16, kBlockWidth = 4, kBlockHeight = kLanes / kBlockWidth;
constexpr int kBands = kTile / kBlockHeight, kBlocks = 4 * kBands;  // block k: band k / 4
// gsplat's thresholds: least contribution, greatest alpha, transmittance at which a pixel is done.
constexpr float kAlphaLow = 1.0f / 255.0f, kAlphaHigh = 0.999f, kOpaque = 1e-4f;
constexpr float kLog2e = 1.44269504f;

typedef float F __attribute__((vector_size(4 * kLanes)));  // one float per pixel of a block
typedef int I __attribute__((vector_size(4 * kLanes)));    // masks: all bits or none
typedef float R __attribute__((vector_size(4 * kBands)));  // one float per band of a tile
typedef int RI __attribute__((vector_size(4 * kBands)));
typedef float F8 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));

TL_INLINE F all(float v) { return F{} + v; }
template <class V> TL_INLINE V least(V a, V b) { return a < b ? a : b; }
template <class V> TL_INLINE V greatest(V a, V b) { return a > b ? a : b; }
TL_INLINE bool any(I m) { return __builtin_reduce_or(m) != 0; }
TL_INLINE float clamp(float v, float low, float high) {
  return v < low ? low : (v > high ? high : v);
}
// Column and row of each lane in its block.
#if defined(__AVX512F__)
TL_INLINE F lane_x() { return F{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}; }
TL_INLINE F lane_y() { return F{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}; }
TL_INLINE R band_top() { return R{0, 4, 8, 12}; }
TL_INLINE F8 fold(F v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else
TL_INLINE F lane_x() { return F{0, 1, 2, 3, 0, 1, 2, 3}; }
TL_INLINE F lane_y() { return F{0, 0, 0, 0, 1, 1, 1, 1}; }
TL_INLINE R band_top() { return R{0, 2, 4, 6, 8, 10, 12, 14}; }
TL_INLINE F8 fold(F v) { return v; }
#endif
// Offset in pixels of block k of a tile.
static const float kBlockX[32] = {0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12,
                                  0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12};
static const float kBlockRow[32] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                    4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7};
TL_INLINE float block_x(int k) { return kBlockX[k]; }
TL_INLINE float block_y(int k) { return kBlockHeight * kBlockRow[k]; }
struct Centres {  // of a tile's pixels: those of block k are x[k & 3] and y[k >> 2]
  F x[4], y[kBands];
  TL_INLINE_MEMBER Centres(int tile_x, int tile_y) {
    for (int j = 0; j < 4; j++) x[j] = lane_x() + ((float)(tile_x * kTile) + 0.5f) + block_x(j);
    for (int j = 0; j < kBands; j++)
      y[j] = lane_y() + ((float)(tile_y * kTile) + 0.5f) + block_y(4 * j);
  }
};

TL_INLINE float sum(F v) {
  const F8 a = fold(v);
  const F4 b =
      __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[1]) + (b[2] + b[3]);
}
// The sums of four or eight vectors at once: a tree of shuffles, a third of the work of one by one.
TL_INLINE F8 quarter_sums(F a, F b, F c, F d) {
  const F8 p = fold(a), q = fold(b), r = fold(c), s = fold(d);
  const F8 pq = __builtin_shufflevector(p, q, 0, 8, 1, 9, 4, 12, 5, 13) +
                __builtin_shufflevector(p, q, 2, 10, 3, 11, 6, 14, 7, 15);
  const F8 rs = __builtin_shufflevector(r, s, 0, 8, 1, 9, 4, 12, 5, 13) +
                __builtin_shufflevector(r, s, 2, 10, 3, 11, 6, 14, 7, 15);
  return __builtin_shufflevector(pq, rs, 0, 1, 8, 9, 4, 5, 12, 13) +
         __builtin_shufflevector(pq, rs, 2, 3, 10, 11, 6, 7, 14, 15);
}
TL_INLINE F4 sums(F a, F b, F c, F d) {
  const F8 v = quarter_sums(a, b, c, d);
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}
TL_INLINE F8 sums(F a, F b, F c, F d, F e, F f, F g, F h) {
  const F8 v = quarter_sums(a, b, c, d), w = quarter_sums(e, f, g, h);
  return __builtin_shufflevector(v, w, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(v, w, 4, 5, 6, 7, 12, 13, 14, 15);
}
// Vectors at addresses that need not be aligned.
TL_INLINE void store(float* to, F8 v) { __builtin_memcpy(to, &v, sizeof v); }
TL_INLINE void store(float* to, F4 v) { __builtin_memcpy(to, &v, sizeof v); }

// 2^t for t <= 0 (2^-125 below -125): minimax polynomial on [-1/2, 1/2], relative error 1e-7. Its
// constants are kept on the stack: without that each use loads and broadcasts them anew, a quarter
// of the instructions of a block. The empty assembler text hides their values from the compiler.
struct Exp2 {
  F low, magic, c1, c2, c3, c4, c5, one;
  TL_INLINE_MEMBER Exp2() {
    low = all(-125.0f);
    magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to whole numbers
    c1 = all(6.93146978e-1f);
    c2 = all(2.40222421e-1f);
    c3 = all(5.55073374e-2f);
    c4 = all(9.67151281e-3f);
    c5 = all(1.32647272e-3f);
    one = all(1.0f);
    asm volatile("" : "+m"(*this));
  }
  TL_INLINE_MEMBER F operator()(F t) const {
    t = greatest(t, low);
    const F rounded = t + magic;
    const F f = t - (rounded - magic);
    const F ff = f * f;  // Estrin's scheme: half the latency of Horner's
    const F p = ((f * c5 + c4) * ff + (f * c3 + c2)) * ff + (f * c1 + one);
    return (F)((I)p + ((I)rounded << 23));
  }
};

// Ellipse in the image, px: centre, half its height, and x = slope dy +- sqrt(reach - shrink dy^2)
// at dy below the centre; tip is the dy of the rightmost point. A negative half height is nothing.
struct Outline {
  float x, y, half_height, slope, reach, shrink, tip;
};
// What an ellipse covers of each band of a tile: columns relative to the first pixel's centre.
struct Spans {
  R left, right;
  RI hit;
};
TL_INLINE R root(R v) { return __builtin_elementwise_sqrt(greatest(v, R{})); }
TL_INLINE Spans spans(const Outline& o, int tile_x, int tile_y) {
  const float x = o.x - ((float)(tile_x * kTile) + 0.5f);
  const float y = o.y - ((float)(tile_y * kTile) + 0.5f);
  const R low = band_top() - y, high = low + (float)(kBlockHeight - 1);
  const R r = least(greatest(R{} + o.tip, low), high), l = least(greatest(R{} - o.tip, low), high);
  Spans s;
  s.hit = (high >= -o.half_height - 0.01f) & (low <= o.half_height + 0.01f);
  s.right = x + o.slope * r + root(o.reach - o.shrink * r * r);
  s.left = x + o.slope * l - root(o.reach - o.shrink * l * l);
  return s;
}
TL_INLINE Spans both(const Spans& a, const Spans& b) {  // the union, filled in between
  Spans s;
  const RI two = a.hit & b.hit;
  s.hit = a.hit | b.hit;
  s.left = two ? least(a.left, b.left) : (a.hit ? a.left : b.left);
  s.right = two ? greatest(a.right, b.right) : (a.hit ? a.right : b.right);
  return s;
}
// Blocks of the tile that the spans touch, one bit each.
TL_INLINE unsigned block_mask(const Spans& s) {
  const R low = greatest(s.left, R{}), high = least(greatest(s.right, R{}), R{} + 15.0f);
  const RI a = __builtin_convertvector(low + 0.985f, RI) >> 2;
  const RI b = __builtin_convertvector(high + 0.01f, RI) >> 2;
  const RI hit = s.hit & (s.right >= R{} - 0.01f) & (s.left <= R{} + 15.01f) & (b >= a);
  const RI bits = ((RI{} + 2 << b) - (RI{} + 1 << a)) & hit & 15;
#if defined(__AVX512F__)
  return __builtin_reduce_or(bits << RI{0, 4, 8, 12});
#else
  return __builtin_reduce_or(bits << RI{0, 4, 8, 12, 16, 20, 24, 28});
#endif
}
TL_INLINE unsigned blocks(const Outline& o, int tile_x, int tile_y) {
  return block_mask(spans(o, tile_x, tile_y));
}
// Blocks of a tile that lie in the image, wholly or in part.
TL_INLINE unsigned blocks_in_image(int tile_x, int tile_y, int width, int height) {
  unsigned mask = 0;
  for (int k = 0; k < kBlocks; k++)
    if (tile_x * kTile + (int)block_x(k) < width && tile_y * kTile + (int)block_y(k) < height)
      mask |= 1u << k;
  return mask;
}

// Tiles that an outline touches in one row of tiles, first to last; false if none.
TL_INLINE bool tiles_in_row(const Outline& o, int tile_y, int across, int& first, int& last) {
  const float low = (float)(tile_y * kTile) + 0.49f - o.y, high = low + 15.02f;
  if (high < -o.half_height || low > o.half_height) return false;
  const float r = clamp(o.tip, low, high), l = clamp(-o.tip, low, high);
  const float qr = o.reach - o.shrink * r * r, ql = o.reach - o.shrink * l * l;
  const float right = o.x + o.slope * r + (qr > 0 ? __builtin_sqrtf(qr) : 0.0f) - 0.49f;
  const float left = o.x + o.slope * l - (ql > 0 ? __builtin_sqrtf(ql) : 0.0f) - 0.51f;
  const float limit = (float)(across * kTile - 1);
  if (!(right >= 0.0f) || !(left <= limit)) return false;
  first = left <= 0.0f ? 0 : (int)__builtin_ceilf(left) / kTile;
  last = right >= limit ? across - 1 : (int)right / kTile;
  return first <= last;
}
// Rows of tiles that an outline touches; false if none.
TL_INLINE bool tile_rows(const Outline& o, int down, int& first, int& last) {
  const float top = o.y - o.half_height, bottom = o.y + o.half_height;
  if (o.half_height < 0.0f || !(bottom > 0.0f) || !(top < (float)(down * kTile))) return false;
  first = top <= 0.0f ? 0 : (int)top / kTile;
  last = bottom >= (float)(down * kTile) ? down - 1 : (int)bottom / kTile;
  return first <= last;
}
// A record of more than one outline overloads these two for its own type.

// Entries of a tile's list that are looked at together: all their block masks first, so that the
// loops over blocks know early how long they are, while the records of the next batch are fetched.
constexpr int kBatch = 16;
template <class Record>
TL_INLINE void fetch(const Record* records, const int* list, int from, int end) {
  const int to = from + kBatch < end ? from + kBatch : end;
  for (int i = from; i < to; i++)
    for (unsigned line = 0; line < sizeof(Record); line += 64)
      __builtin_prefetch((const char*)(records + list[i]) + line);
}

// Lists of records (given in depth order) per tile. Returns the number of entries, or where they
// are more than kMostEntries some greater number; the lists are whole only if `capacity` suffices.
// Sizes: start tiles + 1; begin count + 1; place and list capacity. list[start[t] .. start[t + 1]]
// are the records of tile t, front to back; record n has the entries place[begin[n] ..
// begin[n + 1]] of the list, which is how its gradient is gathered.
constexpr int kMostEntries = 1 << 28;  // so that none overflows, and none counts for minutes
template <class Record>
TL_INLINE int bin(int count, const Record* records, int across, int down, int capacity, int* start,
                  int* begin, int* place, int* list) {
  const int tiles = across * down;
  for (int t = 0; t <= tiles; t++) start[t] = 0;
  int total = 0;
  for (int n = 0; n < count; n++) {
    begin[n] = total;
    if (total > kMostEntries) return total;
    int y0, y1, x0, x1;
    if (!tile_rows(records[n], down, y0, y1)) continue;
    for (int y = y0; y <= y1; y++) {
      if (!tiles_in_row(records[n], y, across, x0, x1)) continue;
      for (int x = x0; x <= x1; x++, total++) {
        start[y * across + x + 1]++;
        if (total < capacity) place[total] = y * across + x;
      }
    }
  }
  begin[count] = total;
  for (int t = 0; t < tiles; t++) start[t + 1] += start[t];
  if (total > capacity) return total;
  for (int n = 0; n < count; n++)
    for (int e = begin[n]; e < begin[n + 1]; e++) {
      const int at = start[place[e]]++;
      list[at] = n;
      place[e] = at;
    }
  for (int t = tiles; t > 0; t--) start[t] = start[t - 1];
  start[0] = 0;
  return total;
}

// Indices of the splats with a depth above zero, nearest first, equal depths by index; returns how
// many. Radix sort of the floats' bits, which order like positive floats. `scratch` has 3 * count.
TL_INLINE int depth_order(int count, const float* depth, int* scratch, int* order) {
  unsigned* key = (unsigned*)scratch;
  unsigned* other_key = key + count;
  int* index = order;
  int* other_index = scratch + 2 * (long)count;
  unsigned histogram[3][2048];
  for (int p = 0; p < 3; p++)
    for (int j = 0; j < 2048; j++) histogram[p][j] = 0;
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (!(depth[i] > 0.0f)) continue;
    unsigned bits;
    __builtin_memcpy(&bits, depth + i, 4);
    key[n] = bits;
    index[n++] = i;
    for (int p = 0; p < 3; p++) histogram[p][(bits >> (11 * p)) & 2047]++;
  }
  for (int p = 0; p < 3; p++) {
    unsigned* h = histogram[p];
    unsigned from = 0;
    bool single = false;
    for (int j = 0; j < 2048; j++) {
      const unsigned size = h[j];
      single |= size == (unsigned)n;
      h[j] = from;
      from += size;
    }
    if (single) continue;  // all keys agree in these bits
    for (int j = 0; j < n; j++) {
      const unsigned at = h[(key[j] >> (11 * p)) & 2047]++;
      other_key[at] = key[j];
      other_index[at] = index[j];
    }
    unsigned* k = key;
    key = other_key;
    other_key = k;
    int* i = index;
    index = other_index;
    other_index = i;
  }
  if (index != order) __builtin_memcpy(order, index, (unsigned long)n * 4);
  return n;
}

#define TL_MIX __builtin_shufflevector
// Four pixels of 1, 3 or 4 channels, from pixel by pixel to channel by channel and back.
TL_INLINE void split(const F4 (&p)[1], F4 (&c)[1]) { c[0] = p[0]; }
TL_INLINE void split(const F4 (&p)[3], F4 (&c)[3]) {
  c[0] = TL_MIX(TL_MIX(p[0], p[1], 0, 3, 6, 6), p[2], 0, 1, 2, 5);
  c[1] = TL_MIX(TL_MIX(p[0], p[1], 1, 4, 7, 7), p[2], 0, 1, 2, 6);
  c[2] = TL_MIX(TL_MIX(p[0], p[1], 2, 5, 5, 5), p[2], 0, 1, 4, 7);
}
TL_INLINE void split(const F4 (&p)[4], F4 (&c)[4]) {
  const F4 a = TL_MIX(p[0], p[1], 0, 4, 1, 5), b = TL_MIX(p[2], p[3], 0, 4, 1, 5);
  const F4 d = TL_MIX(p[0], p[1], 2, 6, 3, 7), e = TL_MIX(p[2], p[3], 2, 6, 3, 7);
  c[0] = TL_MIX(a, b, 0, 1, 4, 5);
  c[1] = TL_MIX(a, b, 2, 3, 6, 7);
  c[2] = TL_MIX(d, e, 0, 1, 4, 5);
  c[3] = TL_MIX(d, e, 2, 3, 6, 7);
}
TL_INLINE void weave(const F4 (&c)[1], F4 (&p)[1]) { p[0] = c[0]; }
TL_INLINE void weave(const F4 (&c)[3], F4 (&p)[3]) {
  p[0] = TL_MIX(TL_MIX(c[0], c[1], 0, 4, 1, 5), c[2], 0, 1, 4, 2);
  p[1] = TL_MIX(TL_MIX(c[1], c[2], 1, 5, 2, 6), c[0], 0, 1, 6, 2);
  p[2] = TL_MIX(TL_MIX(c[2], c[2], 2, 3, 2, 3), TL_MIX(c[0], c[1], 3, 7, 3, 7), 0, 4, 5, 1);
}
TL_INLINE void weave(const F4 (&c)[4], F4 (&p)[4]) { split(c, p); }

// Pixels of a block, `count` channels of an image of `stride` channels; zeros outside the image.
template <int C>
TL_INLINE void load_block(const float* image, int x, int y, int width, int height, int stride,
                          int count, F* out) {
  if (x + kBlockWidth <= width && y + kBlockHeight <= height && stride == C && count == C) {
    for (int r = 0; r < kBlockHeight; r++) {
      F4 pixels[C], channels[C];
      __builtin_memcpy(pixels, image + ((long)(y + r) * width + x) * C, sizeof pixels);
      split(pixels, channels);
      for (int c = 0; c < C; c++) __builtin_memcpy((float*)(out + c) + 4 * r, channels + c, 16);
    }
    return;
  }
  float rows[C][kLanes];
  for (int l = 0; l < kLanes; l++) {
    const int px = x + (l & 3), py = y + (l >> 2);
    const bool inside = px < width && py < height;
    const float* p = image + ((long)py * width + px) * stride;
    for (int c = 0; c < C; c++) rows[c][l] = inside && c < count ? p[c] : 0.0f;
  }
  __builtin_memcpy(out, rows, sizeof rows);
}
template <int C>
TL_INLINE void store_block(float* image, int x, int y, int width, int height, int stride, int count,
                           const F* in) {
  if (x + kBlockWidth <= width && y + kBlockHeight <= height && stride == C && count == C) {
    for (int r = 0; r < kBlockHeight; r++) {
      F4 pixels[C], channels[C];
      for (int c = 0; c < C; c++) __builtin_memcpy(channels + c, (float*)(in + c) + 4 * r, 16);
      weave(channels, pixels);
      __builtin_memcpy(image + ((long)(y + r) * width + x) * C, pixels, sizeof pixels);
    }
    return;
  }
  float rows[C][kLanes];
  __builtin_memcpy(rows, in, sizeof rows);
  for (int l = 0; l < kLanes; l++) {
    const int px = x + (l & 3), py = y + (l >> 2);
    if (px >= width || py >= height) continue;
    float* p = image + ((long)py * width + px) * stride;
    for (int c = 0; c < C; c++)
      if (c < count) p[c] = rows[c][l];
  }
}

}  // namespace twinloop
"""
"""C++ text."""
