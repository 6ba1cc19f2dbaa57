"""C++ source of the CPU compositor, compiled by the clang inside Warp (no compiler needed).

An image is cut into tiles of 16 x 16 pixels and a tile into sixteen blocks of 4 x 4, one block
being one vector of sixteen floats. Each tile walks its Gaussians front to back and touches the
blocks their ellipses reach.

Source of the rules: gsplat's rasteriser. The centre of pixel i is at i + 0.5; alpha =
min(0.999, opacity * exp(-sigma)); contributions under 1/255 are skipped; a pixel is done *before*
the Gaussian that would bring its transmittance T to 1e-4 or less.

The backward pass runs front to back too and needs nothing but the final image. With g = dL/dC and
gT = dL/dT_final, let B = g.C_final + gT T_final; at each Gaussian, with weight w = alpha T and
d = g.colour, B -= w d leaves what lies behind, and dL/dalpha = T d - B / (1 - alpha).
(Differentiating C = sum w colour: a Gaussian in front scales all that is behind it by 1 - alpha.)
Automatic differentiation of such a loop by Warp gives wrong gradients without a warning, hence by
hand.
"""

CHANNELS = 4
"""Feature channels composited in one pass."""
RECORD = 12 + CHANNELS
"""Floats per Gaussian in the packed input."""
GRADIENT = 8 + CHANNELS
"""Floats per Gaussian in the packed gradient."""
TILE = 16
"""Tile side, px."""

SOURCE = r"""
namespace twinloop {

typedef float F16 __attribute__((vector_size(64)));
typedef int I16 __attribute__((vector_size(64)));
typedef float F8 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));
#define TL_INLINE static inline __attribute__((always_inline))

constexpr int kTile = 16, kBlocks = 16, kChannels = 4, kGradient = 12;
constexpr float kAlphaLow = 1.0f / 255.0f, kAlphaHigh = 0.999f, kOpaque = 1e-4f;

// mean, conic (inverse covariance a b; b c), opacity; outline of alpha = 1/255; features.
struct Gaussian {
  float x, y, a, b, c, opacity;
  float half_height;  // of the outline
  float slope;        // the outline is x = slope dy +- sqrt(reach - shrink dy^2)
  float reach, shrink;
  float tip;          // dy of the rightmost point
  float unused;
  float feature[kChannels];
};

TL_INLINE F16 all(float v) { return F16{} + v; }
TL_INLINE F16 column() { return F16{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}; }
TL_INLINE F16 row() { return F16{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}; }
TL_INLINE bool any(I16 m) { return __builtin_reduce_or(m) != 0; }
TL_INLINE float clamp(float v, float low, float high) {
  return v < low ? low : (v > high ? high : v);
}
TL_INLINE float sum(F16 v) {
  F8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  F4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[1]) + (b[2] + b[3]);
}

// exp(-v) for v >= 0: 2^k times the Taylor series of 2^f on [-1/2, 1/2], relative error 2e-7.
TL_INLINE F16 exp_minus(F16 v) {
  F16 t = v * -1.44269504f;
  t = t < -120.0f ? all(-120.0f) : t;
  I16 k = __builtin_convertvector(t - 0.5f, I16);
  F16 f = t - __builtin_convertvector(k, F16);
  F16 p = f * 1.54035304e-4f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  return (F16)((I16)p + (k << 23));
}

// Columns (pixel indices in the image, first and last) that the outline covers between two heights.
TL_INLINE bool columns(const Gaussian& g, float low, float high, int limit, int& first, int& last) {
  if (high < -g.half_height || low > g.half_height) return false;
  const float r = clamp(g.tip, low, high), l = clamp(-g.tip, low, high);
  const float qr = g.reach - g.shrink * r * r, ql = g.reach - g.shrink * l * l;
  const float right = g.x + g.slope * r + (qr > 0 ? __builtin_sqrtf(qr) : 0.0f) - 0.49f;
  const float left = g.x + g.slope * l - (ql > 0 ? __builtin_sqrtf(ql) : 0.0f) - 0.51f;
  if (!(right >= 0.0f) || !(left <= (float)limit)) return false;
  first = left <= 0.0f ? 0 : (int)__builtin_ceilf(left);
  last = right >= (float)limit ? limit : (int)right;
  return first <= last;
}

// Which of a tile's sixteen blocks the outline touches, one bit each.
TL_INLINE unsigned blocks(const Gaussian& g, int tile_x, int tile_y) {
  unsigned mask = 0;
  for (int r = 0; r < 4; r++) {
    const float low = (float)(tile_y * kTile + 4 * r) + 0.49f - g.y;
    int first, last;
    if (!columns(g, low, low + 3.02f, tile_x * kTile + 15, first, last)) continue;
    first -= tile_x * kTile;
    last -= tile_x * kTile;
    if (last < 0) continue;
    if (first < 0) first = 0;
    mask |= ((2u << (last >> 2)) - (1u << (first >> 2))) << (4 * r);
  }
  return mask;
}

// Blocks of a tile that lie in the image.
TL_INLINE unsigned blocks_in_image(int tile_x, int tile_y, int width, int height) {
  unsigned mask = 0;
  for (int k = 0; k < kBlocks; k++)
    if (tile_x * kTile + (k & 3) * 4 < width && tile_y * kTile + (k >> 2) * 4 < height)
      mask |= 1u << k;
  return mask;
}

// Lists of Gaussians per tile, in the given (depth) order. Returns the number of entries; fills
// `list` only if `capacity` suffices. `start` has tiles + 1 entries.
TL_INLINE int bin(int count, const int* order, const Gaussian* gaussians, int width, int height,
                  int capacity, int* start, int* list) {
  const int across = (width + kTile - 1) / kTile, down = (height + kTile - 1) / kTile;
  const int tiles = across * down;
  for (int t = 0; t <= tiles; t++) start[t] = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int n = 0; n < count; n++) {
      const Gaussian& g = gaussians[order[n]];
      const float top = g.y - g.half_height, bottom = g.y + g.half_height;
      if (!(bottom > 0.0f) || !(top < (float)height)) continue;
      const int y0 = top <= 0.0f ? 0 : (int)top / kTile;
      const int y1 = bottom >= (float)height ? down - 1 : (int)bottom / kTile;
      for (int ty = y0; ty <= y1; ty++) {
        const float low = (float)(ty * kTile) + 0.49f - g.y;
        int first, last;
        if (!columns(g, low, low + 15.02f, width - 1, first, last)) continue;
        for (int tx = first / kTile; tx <= last / kTile; tx++) {
          if (pass == 0) start[ty * across + tx + 1]++;
          else list[start[ty * across + tx]++] = order[n];
        }
      }
    }
    if (pass == 0) {
      for (int t = 0; t < tiles; t++) start[t + 1] += start[t];
      if (start[tiles] > capacity) return start[tiles];
    } else {
      for (int t = tiles; t > 0; t--) start[t] = start[t - 1];
      start[0] = 0;
    }
  }
  return start[tiles];
}

struct Block {  // what is common to both passes for one Gaussian on one block
  F16 dx, dy, falloff, raw, alpha, next;
  I16 use;
};

TL_INLINE Block evaluate(const Gaussian& g, F16 dx, F16 dy, F16 T, I16& alive) {
  Block o;
  o.dx = dx;
  o.dy = dy;
  const F16 sigma = 0.5f * (g.a * dx * dx + g.c * dy * dy) + g.b * dx * dy;
  o.falloff = exp_minus(sigma < 0.0f ? F16{} : sigma);
  o.raw = g.opacity * o.falloff;
  o.alpha = o.raw > kAlphaHigh ? all(kAlphaHigh) : o.raw;
  o.next = T * (1.0f - o.alpha);
  const I16 hit = (o.alpha >= kAlphaLow) & (sigma >= 0.0f) & alive;
  const I16 stop = hit & (o.next <= kOpaque);
  alive &= ~stop;
  o.use = hit & ~stop;
  return o;
}

TL_INLINE void forward_tile(int tile, int width, int height, const int* start, const int* list,
                            const Gaussian* gaussians, float* image, float* transmittance) {
  const int across = (width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F16 T[kBlocks], colour[kBlocks][kChannels];
  I16 alive[kBlocks];
  for (int k = 0; k < kBlocks; k++) {
    T[k] = all(1.0f);
    alive[k] = I16{} - 1;
    for (int c = 0; c < kChannels; c++) colour[k][c] = F16{};
  }
  const unsigned shown = blocks_in_image(tx, ty, width, height);
  unsigned live = shown;
  const F16 px = column() + ((float)(tx * kTile) + 0.5f), py = row() + ((float)(ty * kTile) + 0.5f);
  for (int i = start[tile]; i < start[tile + 1] && live; i++) {
    const Gaussian& g = gaussians[list[i]];
    const F16 dx0 = px - g.x, dy0 = py - g.y;
    for (unsigned todo = blocks(g, tx, ty) & live; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const Block o = evaluate(g, dx0 + (float)(4 * (k & 3)), dy0 + (float)(4 * (k >> 2)), T[k],
                               alive[k]);
      const F16 w = o.use ? o.alpha * T[k] : F16{};
      T[k] = o.use ? o.next : T[k];
      for (int c = 0; c < kChannels; c++) colour[k][c] += w * g.feature[c];
      if (!any(alive[k])) live &= ~(1u << k);
    }
  }
  for (int k = 0; k < kBlocks; k++) {
    for (int l = 0; l < 16; l++) {
      const int x = tx * kTile + (k & 3) * 4 + (l & 3), y = ty * kTile + (k >> 2) * 4 + (l >> 2);
      if (x >= width || y >= height) continue;
      const long p = (long)y * width + x;
      transmittance[p] = T[k][l];
      for (int c = 0; c < kChannels; c++) image[p * kChannels + c] = colour[k][c][l];
    }
  }
}

// Adds to `gradient`: per Gaussian x, y, a, b, c, opacity, two unused, features.
TL_INLINE void backward_tile(int tile, int width, int height, const int* start, const int* list,
                             const Gaussian* gaussians, const float* image,
                             const float* transmittance, const float* image_gradient,
                             const float* transmittance_gradient, float* gradient) {
  const int across = (width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F16 T[kBlocks], behind[kBlocks], v[kBlocks][kChannels];
  I16 alive[kBlocks];
  for (int k = 0; k < kBlocks; k++) {
    T[k] = all(1.0f);
    alive[k] = I16{} - 1;
    behind[k] = F16{};
    for (int c = 0; c < kChannels; c++) v[k][c] = F16{};
    for (int l = 0; l < 16; l++) {
      const int x = tx * kTile + (k & 3) * 4 + (l & 3), y = ty * kTile + (k >> 2) * 4 + (l >> 2);
      if (x >= width || y >= height) continue;
      const long p = (long)y * width + x;
      float b = transmittance_gradient[p] * transmittance[p];
      for (int c = 0; c < kChannels; c++) {
        v[k][c][l] = image_gradient[p * kChannels + c];
        b += image_gradient[p * kChannels + c] * image[p * kChannels + c];
      }
      behind[k][l] = b;
    }
  }
  unsigned live = blocks_in_image(tx, ty, width, height);
  const F16 px = column() + ((float)(tx * kTile) + 0.5f), py = row() + ((float)(ty * kTile) + 0.5f);
  for (int i = start[tile]; i < start[tile + 1] && live; i++) {
    const Gaussian& g = gaussians[list[i]];
    const F16 dx0 = px - g.x, dy0 = py - g.y;
    F16 sx = {}, sy = {}, sxx = {}, sxy = {}, syy = {}, so = {}, sf[kChannels];
    for (int c = 0; c < kChannels; c++) sf[c] = F16{};
    bool touched = false;
    for (unsigned todo = blocks(g, tx, ty) & live; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const Block o = evaluate(g, dx0 + (float)(4 * (k & 3)), dy0 + (float)(4 * (k >> 2)), T[k],
                               alive[k]);
      if (!any(alive[k])) live &= ~(1u << k);
      if (!any(o.use)) continue;
      touched = true;
      const F16 w = o.use ? o.alpha * T[k] : F16{};
      F16 d = {};
      for (int c = 0; c < kChannels; c++) {
        d += v[k][c] * g.feature[c];
        sf[c] += v[k][c] * w;
      }
      behind[k] -= w * d;
      F16 va = T[k] * d - behind[k] / (1.0f - o.alpha);
      va = (o.use & (o.raw <= kAlphaHigh)) ? va : F16{};  // no gradient through the clamp
      T[k] = o.use ? o.next : T[k];
      so += o.falloff * va;
      const F16 vs = -o.raw * va, vx = vs * o.dx, vy = vs * o.dy;  // vs = dL/dsigma
      sx += vx;
      sy += vy;
      sxx += vx * o.dx;
      sxy += vx * o.dy;
      syy += vy * o.dy;
    }
    if (!touched) continue;
    float* out = gradient + (long)list[i] * kGradient;
    const float x = sum(sx), y = sum(sy);
    out[0] -= g.a * x + g.b * y;
    out[1] -= g.b * x + g.c * y;
    out[2] += 0.5f * sum(sxx);
    out[3] += sum(sxy);
    out[4] += 0.5f * sum(syy);
    out[5] += sum(so);
    for (int c = 0; c < kChannels; c++) out[8 + c] += sum(sf[c]);
  }
}

}  // namespace twinloop
"""
