"""C++ source of the CPU compositor of surfels (2D Gaussians), forward, on top of `simd`.

A surfel is a disc p + u tu + v tv with falloff exp(-(u^2 + v^2) / 2). The ray of a pixel meets its
plane at (u, v, 1) / depth = A + B dx + C dy (after Huang et al. 2024, 2D Gaussian Splatting, eq.
8-10): the columns B, C, A of the inverse of K [tu tv p], shifted to the surfel's own centre on the
screen, which keeps single precision exact; (dx, dy) is the pixel relative to that centre. A
low-pass disc of the screen takes over where it is wider: sigma is half the lesser of u^2 + v^2 and
k (dx^2 + dy^2).
"""

RECORD = 32
"""Floats per surfel in the packed input."""
FLAT = 6
"""Features composited in one pass: three colours and the normal, or six more channels."""
FEATURES = 24
"""Where a record's features start."""
GRADIENT = 20
"""Floats per entry of a tile's list in the packed gradient."""

SOURCE = r"""
namespace twinloop {
namespace surfels {

constexpr int kRecord = 32, kGradient = 20;

struct Surfel {
  float x, y;       // centre of the low-pass disc, px
  float opacity, filter;
  float A[3], B[3], C[3];
  float z;          // depth of the mean
  float disc;       // radius of the low-pass disc, px; zero where it lies in the outline
  Outline outline;
  float unused[2];
  float feature[8];  // colours 0 to 2, normal 3 to 5
};

TL_INLINE Outline disc_of(const Surfel& s) {
  return Outline{s.x, s.y, s.disc, 0.0f, s.disc * s.disc, 1.0f, 0.0f};
}
TL_INLINE bool tile_rows(const Surfel& s, int down, int& first, int& last) {
  const bool found = twinloop::tile_rows(s.outline, down, first, last);
  if (!(s.disc > 0.0f)) return found;
  int f, l;
  if (!twinloop::tile_rows(disc_of(s), down, f, l)) return found;
  first = found && first < f ? first : f;
  last = found && last > l ? last : l;
  return true;
}
TL_INLINE bool tiles_in_row(const Surfel& s, int tile_y, int across, int& first, int& last) {
  const bool found = twinloop::tiles_in_row(s.outline, tile_y, across, first, last);
  if (!(s.disc > 0.0f)) return found;
  int f, l;
  if (!twinloop::tiles_in_row(disc_of(s), tile_y, across, f, l)) return found;
  first = found && first < f ? first : f;
  last = found && last > l ? last : l;
  return true;
}
TL_INLINE unsigned blocks_of(const Surfel& s, int tile_x, int tile_y) {
  const Spans ellipse = spans(s.outline, tile_x, tile_y);
  if (!(s.disc > 0.0f)) return block_mask(ellipse);
  return block_mask(both(ellipse, spans(disc_of(s), tile_x, tile_y)));
}

// The image in memory; null pointers are not wanted (forward) or no gradient (backward).
struct Pixels {
  int width, height;
  float* colour;      // (h, w, channels): features [0, taken) of this pass at `first`
  int channels, first, taken;
  float* normal;      // (h, w, 3): features 3 to 5
  int depth;          // channel of `colour` that is depth, or -1
  int expected;       // whether that depth is divided by alpha
  float* alpha;       // (h, w)
  float* distortion;  // (h, w)
  float* median;      // (h, w)
};

// Where the rays of a block meet a surfel: u, v, 1 / depth, u^2 + v^2 or -1 where the disc of the
// screen is wider, and opacity times falloff.
struct Meeting {
  F u, v, inverse, plane, raw;
};
TL_INLINE Meeting meet(const Exp2& exp2, const Surfel& s, F dx, F dy) {
  Meeting m;
  const F zx = s.B[0] * dx + (s.C[0] * dy + s.A[0]);
  const F zy = s.B[1] * dx + (s.C[1] * dy + s.A[1]);
  const F zz = s.B[2] * dx + (s.C[2] * dy + s.A[2]);
  m.inverse = 1.0f / greatest(zz, all(1e-6f));  // behind the camera: far away, so out of reach
  m.u = zx * m.inverse;
  m.v = zy * m.inverse;
  const F plane = m.u * m.u + m.v * m.v, screen = s.filter * (dx * dx + dy * dy);
  m.raw = s.opacity * exp2((-0.5f * kLog2e) * least(plane, screen));
  m.plane = plane <= screen ? plane : all(-1.0f);
  return m;
}
// `crossing` is one if depth is where the ray crosses the surfel, zero if that of its mean; as a
// sum, for a mask of both would be costly: exact, since one term is zero.
TL_INLINE F depth_of(const Surfel& s, F inverse, F plane, float crossing) {
  return plane >= 0.0f ? inverse * crossing + s.z * (1.0f - crossing) : all(s.z);
}

struct Hit {  // what is common to both passes for one surfel on one block
  F weight, next;
  I use, seen;  // contributes; does or ends the pixel
};
// T is negative where a pixel is done, which makes `next` too small for any contribution.
TL_INLINE Hit evaluate(F raw, F depth, F& T, float near) {
  Hit h;
  const F alpha = least(raw, all(kAlphaHigh));
  h.weight = alpha * T;
  h.next = T - h.weight;
  const I hit = (alpha >= kAlphaLow) & (depth > near);
  h.use = hit & (h.next > kOpaque);
  h.seen = hit & (T > 0.0f);
  const I stop = hit & ~h.use;
  T = (F)((I)T | (stop & (int)0x80000000));
  return h;
}

// Blocks that are not done. Looked at once a batch only: a branch on each result waits for it.
TL_INLINE unsigned still_live(unsigned live, const F* T) {
  for (unsigned rest = live; rest; rest &= rest - 1)
    if (!any(T[__builtin_ctz(rest)] > 0.0f)) live &= ~(rest & -rest);
  return live;
}

struct Place {  // pixel of the image
  int x, y;
};
template <int C>
TL_INLINE void put(float* image, Place at, const Pixels& p, int stride, int count, const F* in) {
  store_block<C>(image, at.x, at.y, p.width, p.height, stride, count, in);
}
template <int C>
TL_INLINE void take(const float* image, Place at, const Pixels& p, int stride, int count, F* out) {
  load_block<C>(image, at.x, at.y, p.width, p.height, stride, count, out);
}
TL_INLINE int some(int count) { return count < 3 ? count : 3; }
// A block of this pass's features and, after them, of depth: three colours and depth at once if
// that is all the image has.
template <int kCount, int kDepth>
TL_INLINE void put_colours(const Pixels& p, Place at, const F* v) {
  if (kDepth > 0 && p.depth == 3 && p.taken == 3) {
    const F four[4] = {v[0], v[1], v[2], v[kCount]};
    return put<4>(p.colour, at, p, p.channels, 4, four);
  }
  put<3>(p.colour + p.first, at, p, p.channels, some(p.taken), v);
  if (kCount > 3 && p.taken > 3)
    put<3>(p.colour + p.first + 3, at, p, p.channels, p.taken - 3, v + kCount - 3);
  if (kDepth > 0 && p.depth >= 0) put<1>(p.colour + p.depth, at, p, p.channels, 1, v + kCount);
}
template <int kCount, int kDepth>
TL_INLINE void take_colours(const float* image, const Pixels& p, Place at, F* v) {
  for (int c = 0; c <= kCount; c++) v[c] = F{};
  if (kDepth > 0 && p.depth == 3 && p.taken == 3) {
    F four[4];
    take<4>(image, at, p, p.channels, 4, four);
    for (int c = 0; c < 3; c++) v[c] = four[c];
    v[kCount] = four[3];
    return;
  }
  take<3>(image + p.first, at, p, p.channels, some(p.taken), v);
  if (kCount > 3 && p.taken > 3)
    take<3>(image + p.first + 3, at, p, p.channels, p.taken - 3, v + kCount - 3);
  if (kDepth > 0 && p.depth >= 0) take<1>(image + p.depth, at, p, p.channels, 1, v + kCount);
}

// kDepth: 0 no depth, 1 depth, 2 depth and distortion. used[i]: the blocks on which entry i of the
// list contributes or ends a pixel, all that the backward pass visits.
template <int kCount, int kDepth>
static void forward_tile(int tile, const Pixels& out, const int* start, const int* list,
                         const Surfel* surfels, const float* features, int stride, float near,
                         int crossed, const float* background, float* transmittance,
                         unsigned* used) {
  constexpr int kColours = kCount > 0 ? kCount : 1;
  const int across = (out.width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F T[kBlocks], sum_of[kBlocks][kColours], depth[kBlocks], distortion[kBlocks], median[kBlocks];
  F raw[kBlocks], z_of[kBlocks];
  const Centres pixel(tx, ty);
  const float crossing = crossed ? 1.0f : 0.0f;
  const Exp2 exp2;
  for (int k = 0; k < kBlocks; k++) {
    const I shown = (pixel.x[k & 3] < (float)out.width) & (pixel.y[k >> 2] < (float)out.height);
    T[k] = shown ? all(1.0f) : all(-1.0f);
    depth[k] = distortion[k] = median[k] = F{};
    for (int c = 0; c < kCount; c++) sum_of[k][c] = F{};
  }
  unsigned live = blocks_in_image(tx, ty, out.width, out.height);
  const int end = start[tile + 1];
  int i = start[tile];
  fetch(surfels, list, i, end);
  while (i < end && live) {
    const int from = i, to = from + kBatch < end ? from + kBatch : end;
    fetch(surfels, list, to, end);
    unsigned masks[kBatch];
    for (int j = from; j < to; j++) masks[j - from] = blocks_of(surfels[list[j]], tx, ty) & live;
    for (; i < to; i++) {
      unsigned mask = 0;
      const Surfel& s = surfels[list[i]];
      const float* feature = features + (long)list[i] * stride;
      for (unsigned todo = masks[i - from]; todo; todo &= todo - 1) {
        const int k = __builtin_ctz(todo);
        const Meeting m = meet(exp2, s, pixel.x[k & 3] - s.x, pixel.y[k >> 2] - s.y);
        raw[k] = m.raw;
        z_of[k] = depth_of(s, m.inverse, m.plane, crossing);
      }
      for (unsigned todo = masks[i - from]; todo; todo &= todo - 1) {
        const int k = __builtin_ctz(todo);
        F t = T[k];
        const Hit h = evaluate(raw[k], z_of[k], t, near);
        const F w = h.use ? h.weight : F{};
        for (int c = 0; c < kCount; c++) sum_of[k][c] += w * feature[c];
        if (kDepth > 0) {
          const F z = h.use ? z_of[k] : F{};
          // Volatile, or it becomes a masked store, which some processors take twenty steps for.
          const F older = *(volatile F*)(median + k);
          median[k] = (h.use & (t > 0.5f)) ? z : older;
          if (kDepth > 1) distortion[k] += 2.0f * w * (z * (1.0f - t) - depth[k]);
          depth[k] += w * z;
        }
        T[k] = h.use ? h.next : t;
        mask |= (unsigned)any(h.seen) << k;
      }
      used[i] = mask;
    }
    live = still_live(live, T);
  }
  for (; i < end; i++) used[i] = 0;
  for (unsigned todo = blocks_in_image(tx, ty, out.width, out.height); todo; todo &= todo - 1) {
    const int k = __builtin_ctz(todo);
    const Place at{tx * kTile + (int)block_x(k), ty * kTile + (int)block_y(k)};
    const F t = T[k] < 0.0f ? -T[k] : T[k], cover = 1.0f - t;
    F shown[kColours + 1];
    for (int c = 0; c < kCount; c++) {
      const bool colour = c < out.taken && !(out.normal && c >= 3);
      shown[c] = colour ? sum_of[k][c] + t * background[out.first + c] : sum_of[k][c];
    }
    if (kDepth > 0 && out.depth >= 0) {
      const F d = depth[k] + t * background[out.depth];
      shown[kCount] = out.expected ? d / greatest(cover, all(1e-10f)) : d;
    }
    put_colours<kCount, kDepth>(out, at, shown);
    if (kCount > 3 && out.normal) put<3>(out.normal, at, out, 3, 3, sum_of[k] + kCount - 3);
    if (out.alpha) {
      put<1>(out.alpha, at, out, 1, 1, &cover);
      put<1>(transmittance, at, out, 1, 1, &t);
    }
    if (kDepth > 0 && out.median) put<1>(out.median, at, out, 1, 1, median + k);
    if (kDepth > 1 && out.distortion) put<1>(out.distortion, at, out, 1, 1, distortion + k);
  }
}

}  // namespace surfels
}  // namespace twinloop
"""
