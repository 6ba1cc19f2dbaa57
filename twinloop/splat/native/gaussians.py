"""C++ text of the compositor of 3D Gaussians, both ways; goes after `simd.SOURCE`.

Source of the rules: gsplat's rasteriser. alpha = min(0.999, opacity exp(-sigma)); contributions
under 1/255 are skipped; a pixel is done *before* the Gaussian that would bring its transmittance T
to 1e-4 or less.

The backward pass runs front to back too and needs nothing but the final image. With g = dL/dC and
gT = dL/dT_final, let B = g.C_final + gT T_final; at each Gaussian, with weight w = alpha T and
d = g.colour, B -= w d leaves what lies behind, and dL/dalpha = T d - B / (1 - alpha).
(Differentiating C = sum w colour: a Gaussian in front scales all that is behind it by 1 - alpha.)
Automatic differentiation of such a loop by Warp gives wrong gradients without a warning, hence by
hand.

The conic is kept factored, sigma = (p (dx + s dy)^2 + q dy^2) / 2: never negative, and exact in
float32 where a dx^2 + 2 b dx dy + c dy^2 cancels, as it does for needles.

Each entry of a tile's list has its own row of gradient sums, written once and in the list's order,
for writing here and there costs more than reading so; they are added up per Gaussian in the order
of its entries. So nothing is cleared or shared between threads, and the result does not depend on
how tiles are split over them.
"""

RECORD = 16
"""Floats per visible Gaussian in the packed input: outline, conic, log2 opacity, features."""
CHANNELS = 4
"""Feature channels composited in one pass, at most."""
SUMS = 12
"""Floats per list entry of the gradient: six sums over pixels, two unused, features."""
GEOMETRY = 6
"""Floats per projected Gaussian: x, y, conic p, s, q (see above), opacity."""
FIELDS = (
    "count",
    "width",
    "height",
    "channels",
    "first",
    "part",
    "stride",
    "capacity",
    "geometry",
    "depths",
    "features",
    "scratch",
    "order",
    "rank",
    "radii",
    "records",
    "totals",
    "start",
    "begin",
    "place",
    "list",
    "image",
    "transmittance",
    "used",
    "image_gradient",
    "alpha_gradient",
    "rows",
    "geometry_gradient",
    "feature_gradient",
)
"""Fields of `View` below: whole numbers of 64 bits, from `geometry` on addresses."""

SOURCE = r"""
namespace twinloop {

// Packed in depth order. log2 of alpha is p (dx + s dy)^2 + q dy^2 + level.
struct Gaussian {
  Outline outline;  // of alpha = 1/255
  float p, s, q, level, unused;
  float feature[4];
};
TL_INLINE bool tiles_in_row(const Gaussian& g, int y, int across, int& first, int& last) {
  return tiles_in_row(g.outline, y, across, first, last);
}
TL_INLINE bool tile_rows(const Gaussian& g, int down, int& first, int& last) {
  return tile_rows(g.outline, down, first, last);
}

TL_INLINE void pack_features(int visible, const int* order, const float* features, int stride,
                             int first, int count, Gaussian* records) {
  for (int n = 0; n < visible; n++) {
    if (n + kBatch < visible)
      __builtin_prefetch(features + (long)order[n + kBatch] * stride + first);
    for (int c = 0; c < 4; c++)
      records[n].feature[c] = c < count ? features[(long)order[n] * stride + first + c] : 0.0f;
  }
}

// Order by depth, leave out what cannot be seen, pack. geometry: x, y, conic p, s, q, opacity; a
// depth of zero leaves a Gaussian out. Fills order, rank (-1: not seen) and radii (gsplat's: px,
// along x and y); returns how many can be seen.
TL_INLINE int pack(int count, const float* geometry, const float* depth, int width, int height,
                   float radius_clip, int* scratch, int* order, int* rank, int* radii,
                   Gaussian* records) {
  const int sorted = depth_order(count, depth, scratch, order);
  for (int i = 0; i < count; i++) rank[i] = -1;
  int visible = 0;
  for (int n = 0; n < sorted; n++) {
    const int i = order[n];
    if (n + kBatch < sorted) __builtin_prefetch(geometry + (long)order[n + kBatch] * 6);
    const float* from = geometry + (long)i * 6;
    const float x = from[0], y = from[1], p = from[2], s = from[3], q = from[4], opacity = from[5];
    if (!(opacity >= kAlphaLow) || !(p > 0.0f) || !(q > 0.0f)) continue;
    const float bits = __builtin_log2f(opacity);
    const float level = 2.0f / kLog2e * (bits + 7.99435344f);  // of 2 sigma, where alpha is 1/255
    const float variance = 1.0f / p + s * s / q;               // along x
    const float width_half = __builtin_sqrtf(level * variance);
    const Outline o = {x, y, __builtin_sqrtf(level / q), -s, level / p, q / p,
                       -s / (q * variance) * width_half};
    const float rx = __builtin_ceilf(width_half), ry = __builtin_ceilf(o.half_height);
    if (rx <= radius_clip && ry <= radius_clip) continue;
    if (!(x + rx > 0.0f && x - rx < width && y + ry > 0.0f && y - ry < height)) continue;
    radii[2 * (long)i] = (int)clamp(rx, 0.0f, 1e9f);
    radii[2 * (long)i + 1] = (int)clamp(ry, 0.0f, 1e9f);
    rank[i] = visible;
    order[visible] = i;
    Gaussian& g = records[visible++];
    g.outline = o;
    g.p = -0.5f * kLog2e * p;
    g.s = s;
    g.q = -0.5f * kLog2e * q;
    g.level = bits;
    g.unused = 0.0f;
  }
  return visible;
}

// Opacity times falloff at u = dx + s dy.
TL_INLINE F falloff(const Exp2& exp2, const Gaussian& g, F u, F dy) {
  return exp2(u * (g.p * u) + (dy * (g.q * dy) + g.level));
}
constexpr int kSign = (int)0x80000000;
struct Step {  // what both passes do for one Gaussian on one block
  F alpha, weight, next;
  I use, seen;  // counts; counts or ends the pixel
};
// T is negative where a pixel is done: the transmittance it keeps, with the other sign.
TL_INLINE Step step(F raw, F T) {
  Step s;
  s.alpha = least(raw, all(kAlphaHigh));
  const F w = T * s.alpha, next = T - w;
  const I hit = s.alpha >= kAlphaLow;
  s.use = hit & (next > kOpaque);
  s.seen = hit & (T > 0.0f);
  s.weight = s.use ? w : F{};
  s.next = s.use ? next : (F)((I)T | (hit & kSign));
  return s;
}

// used[i]: the blocks on which entry i of the list counts or ends a pixel, all that the backward
// pass visits.
template <int C>
TL_INLINE void forward_tile(int tile, int width, int height, int stride, int count,
                            const int* start, const int* list, const Gaussian* records,
                            float* image, float* transmittance, unsigned* used) {
  const int across = (width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F T[kBlocks], colour[kBlocks][C], raw[kBlocks];
  for (int k = 0; k < kBlocks; k++) {
    T[k] = all(1.0f);
    for (int c = 0; c < C; c++) colour[k][c] = F{};
  }
  const unsigned shown = blocks_in_image(tx, ty, width, height);
  unsigned live = shown;
  const Centres pixel(tx, ty);
  const Exp2 exp2;
  const int end = start[tile + 1];
  int i = start[tile];
  fetch(records, list, i, end);
  while (i < end && live) {
    const int from = i, to = from + kBatch < end ? from + kBatch : end;
    fetch(records, list, to, end);
    unsigned masks[kBatch];
    for (int j = from; j < to; j++)
      masks[j - from] = blocks(records[list[j]].outline, tx, ty) & live;
    for (; i < to; i++) {
      const Gaussian& g = records[list[i]];
      unsigned mask = 0;
      for (unsigned todo = masks[i - from]; todo; todo &= todo - 1) {
        const int k = __builtin_ctz(todo);
        const F dx = pixel.x[k & 3] - g.outline.x, dy = pixel.y[k >> 2] - g.outline.y;
        raw[k] = falloff(exp2, g, dx + g.s * dy, dy);
      }
      for (unsigned todo = masks[i - from]; todo; todo &= todo - 1) {
        const int k = __builtin_ctz(todo);
        const Step s = step(raw[k], T[k]);
        for (int c = 0; c < C; c++) colour[k][c] += s.weight * g.feature[c];
        T[k] = s.next;
        mask |= (unsigned)any(s.seen) << k;
      }
      used[i] = mask;
    }
    // Once a batch only: a branch on each result would wait for it.
    for (unsigned rest = live; rest; rest &= rest - 1)
      if (!any(T[__builtin_ctz(rest)] > 0.0f)) live &= ~(rest & -rest);
  }
  for (; i < end; i++) used[i] = 0;
  for (unsigned todo = shown; todo; todo &= todo - 1) {
    const int k = __builtin_ctz(todo);
    const int x = tx * kTile + (int)block_x(k), y = ty * kTile + (int)block_y(k);
    const F passed = T[k] < 0.0f ? -T[k] : T[k];
    store_block<1>(transmittance, x, y, width, height, 1, 1, &passed);
    store_block<C>(image, x, y, width, height, stride, count, colour[k]);
  }
}

// Writes a row per entry of the list: sums over the tile's pixels of v, v u,
// v dy, v u^2, v u dy, v dy^2 with v = alpha dL/dalpha, and the gradient of the features.
// `alpha_gradient` may be null.
template <int C>
TL_INLINE void backward_tile(int tile, int width, int height, int stride, int count,
                             const int* start, const int* list, const Gaussian* records,
                             const float* image, const float* transmittance, const unsigned* used,
                             const float* image_gradient, const float* alpha_gradient,
                             float* gradient) {
  const int across = (width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F T[kBlocks], behind[kBlocks], v[kBlocks][C];
  for (unsigned todo = blocks_in_image(tx, ty, width, height); todo; todo &= todo - 1) {
    const int k = __builtin_ctz(todo);
    const int x = tx * kTile + (int)block_x(k), y = ty * kTile + (int)block_y(k);
    F shown[C], passed, back = F{};
    load_block<C>(image, x, y, width, height, stride, count, shown);
    load_block<C>(image_gradient, x, y, width, height, stride, count, v[k]);
    T[k] = all(1.0f);
    if (alpha_gradient) {
      load_block<1>(transmittance, x, y, width, height, 1, 1, &passed);
      load_block<1>(alpha_gradient, x, y, width, height, 1, 1, &back);
      back *= -passed;
    }
    for (int c = 0; c < C; c++) back += shown[c] * v[k][c];
    behind[k] = back;
  }
  const Centres pixel(tx, ty);
  const Exp2 exp2;
  const int end = start[tile + 1];
  fetch(records, list, start[tile], end);
  for (int i = start[tile]; i < end; i++) {
    if ((i - start[tile]) % kBatch == 0) fetch(records, list, i + kBatch, end);
    float* out = gradient + (long)i * 12;
    const unsigned hit = used[i];
    if (!hit) {
      store(out, F8{});
      store(out + 8, F4{});
      continue;
    }
    const Gaussian& g = records[list[i]];
    // In three loops: short chains of steps, of which more are under way at once, and sums that
    // stay in registers.
    F u[kBlocks], raw[kBlocks], weight[kBlocks], slope[kBlocks];
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const F dx = pixel.x[k & 3] - g.outline.x, dy = pixel.y[k >> 2] - g.outline.y;
      u[k] = dx + g.s * dy;
      raw[k] = falloff(exp2, g, u[k], dy);
    }
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const Step s = step(raw[k], T[k]);
      F d = {};
      for (int c = 0; c < C; c++) d += v[k][c] * g.feature[c];
      const F rest = behind[k] - s.weight * d;
      behind[k] = rest;
      const F va = T[k] * d - rest / (1.0f - s.alpha);
      T[k] = s.next;
      weight[k] = s.weight;
      // No gradient through the clamp.
      slope[k] = (s.use & (raw[k] <= kAlphaHigh)) ? raw[k] * va : F{};
    }
    F s0 = {}, su = {}, sy = {}, suu = {}, suy = {}, syy = {}, sf[4] = {};
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const F dy = pixel.y[k >> 2] - g.outline.y, va = slope[k], vu = va * u[k], vy = va * dy;
      for (int c = 0; c < C; c++) sf[c] += v[k][c] * weight[k];
      s0 += va;
      su += vu;
      sy += vy;
      suu += vu * u[k];
      suy += vu * dy;
      syy += vy * dy;
    }
    store(out, sums(s0, su, sy, suu, suy, syy, sf[0], sf[1]));
    store(out + 8, sums(sf[2], sf[3], F{}, F{}));
  }
}

// Gradient of the geometry and features of Gaussians [from, to): adds to geometry_gradient (x, y,
// conic p, s, q, opacity), sets feature_gradient.
TL_INLINE void gather(int from, int to, const float* geometry, const int* rank, const int* begin,
                      const int* place, const float* gradient, int stride, int first, int count,
                      float* geometry_gradient, float* feature_gradient) {
  for (int i = from; i < to; i++) {
    F8 low = {};
    F4 high = {};
    const int n = rank[i], later = i + 8 < to ? rank[i + 8] : -1;
    if (later >= 0)
      for (int e = begin[later]; e < begin[later + 1]; e++) {
        __builtin_prefetch(gradient + (long)place[e] * 12);
        __builtin_prefetch(gradient + (long)place[e] * 12 + 11);
      }
    if (n >= 0)
      for (int e = begin[n]; e < begin[n + 1]; e++) {
        const float* from_entry = gradient + (long)place[e] * 12;
        F8 a;
        F4 b;
        __builtin_memcpy(&a, from_entry, sizeof a);
        __builtin_memcpy(&b, from_entry + 8, sizeof b);
        low += a;
        high += b;
      }
    const float* v = geometry + (long)i * 6;
    float* g = geometry_gradient + (long)i * 6;
    // sigma = (p u^2 + q dy^2) / 2, u = dx + s dy, dx = pixel - x, dy = pixel - y; dL/dsigma = -v.
    if (n >= 0) {
      g[0] += v[2] * low[1];
      g[1] += v[2] * v[3] * low[1] + v[4] * low[2];
      g[2] -= 0.5f * low[3];
      g[3] -= v[2] * low[4];
      g[4] -= 0.5f * low[5];
      g[5] += low[0] / v[5];
    }
    const float f[4] = {low[6], low[7], high[0], high[1]};
    for (int c = 0; c < count; c++) feature_gradient[(long)i * stride + first + c] = f[c];
  }
}

// All that a camera's passes work on; see FIELDS. A launch of a kernel costs 5 us per array that it
// is given, as much as a small step's work in all, hence one address of a table.
struct View {
  long count, width, height;
  long channels, first, part;  // of the image; first channel and number of channels of this pass
  long stride;                 // floats per Gaussian in features
  long capacity;
  const float *geometry, *depths, *features;
  int *scratch, *order, *rank, *radii;
  Gaussian* records;
  int *totals, *start, *begin, *place, *list;
  float *image, *transmittance;
  unsigned* used;
  const float *image_gradient, *alpha_gradient;
  float *rows, *geometry_gradient, *feature_gradient;
};

TL_INLINE void pack_features(const View& v) {
  pack_features(v.totals[0], v.order, v.features, v.stride, v.first, v.part, v.records);
}
TL_INLINE void pack_and_bin(const View& v, bool again, float radius_clip) {
  if (!again) {
    v.totals[0] = pack(v.count, v.geometry, v.depths, v.width, v.height, radius_clip, v.scratch,
                       v.order, v.rank, v.radii, v.records);
    pack_features(v);
  }
  const int across = (v.width + kTile - 1) / kTile, down = (v.height + kTile - 1) / kTile;
  v.totals[1] =
      bin(v.totals[0], v.records, across, down, v.capacity, v.start, v.begin, v.place, v.list);
}
template <int C>
TL_INLINE void forward_tile(const View& v, int tile) {
  forward_tile<C>(tile, v.width, v.height, v.channels, v.part, v.start, v.list, v.records,
                  v.image + v.first, v.transmittance, v.used);
}
template <int C>
TL_INLINE void backward_tile(const View& v, int tile) {
  backward_tile<C>(tile, v.width, v.height, v.channels, v.part, v.start, v.list, v.records,
                   v.image + v.first, v.transmittance, v.used, v.image_gradient + v.first,
                   v.first == 0 ? v.alpha_gradient : (const float*)0, v.rows);
}
TL_INLINE void gather(const View& v, int from, int to) {
  gather(from, to, v.geometry, v.rank, v.begin, v.place, v.rows, v.stride, v.first,
         v.part, v.geometry_gradient, v.feature_gradient);
}

}  // namespace twinloop
"""
