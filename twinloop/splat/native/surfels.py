"""C++ source of the CPU compositor of surfels (2D Gaussians), on top of `simd`.

A surfel is a disc p + u tu + v tv with falloff exp(-(u^2 + v^2) / 2). The ray of a pixel meets its
plane at (u, v, 1) / depth = A + B dx + C dy (after Huang et al. 2024, 2D Gaussian Splatting, eq.
8-10): the columns B, C, A of the inverse of K [tu tv p], shifted to the surfel's own centre on the
screen, which keeps single precision exact; (dx, dy) is the pixel relative to that centre. A
low-pass disc of the screen takes over where it is wider: sigma is half the lesser of u^2 + v^2 and
k (dx^2 + dy^2).

The backward pass runs front to back and needs nothing but the final image. With g = dL/dC and
gT = dL/dT_final, let B = g.C_final + gT T_final; at each surfel, with weight w = alpha T and
d = g.feature, B -= w d leaves what lies behind, and dL/dalpha = T d - B / (1 - alpha).

Distortion is gsplat's (L1, sorted): D = 2 sum_i w_i (z_i W_<i - M_<i) with W and M the sums of w
and w z in front. dD/dw_i = 2 (z_i (W_<i - W_>i) - M_<i + M_>i), dD/dz_i = 2 w_i (W_<i - W_>i); the
sums behind follow from the final ones. D is of degree two in w, so it enters B twice.
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

struct Hit {  // what is common to both passes for one surfel on one block
  F u, v, plane, inverse, raw, weight, next, depth;
  I inside, use, seen;  // on the plane rather than the disc; contributes; does or ends the pixel
};

// T is negative where a pixel is done, which makes `next` too small for any contribution.
// `crossing` is one if depth is where the ray crosses the surfel, zero if that of its mean.
TL_INLINE Hit evaluate(const Exp2& exp2, const Surfel& s, F dx, F dy, F& T, float near,
                       float crossing) {
  Hit h;
  const F zx = s.B[0] * dx + (s.C[0] * dy + s.A[0]);
  const F zy = s.B[1] * dx + (s.C[1] * dy + s.A[1]);
  const F zz = s.B[2] * dx + (s.C[2] * dy + s.A[2]);
  h.inverse = 1.0f / greatest(zz, all(1e-6f));  // behind the camera: far away, so out of reach
  h.u = zx * h.inverse;
  h.v = zy * h.inverse;
  const F screen = s.filter * (dx * dx + dy * dy);
  h.plane = h.u * h.u + h.v * h.v;
  h.inside = h.plane <= screen;
  h.raw = s.opacity * exp2((-0.5f * kLog2e) * least(h.plane, screen));
  const F alpha = least(h.raw, all(kAlphaHigh));
  // As a sum, for a mask of both would be costly: exact, since one term is zero.
  h.depth = h.inside ? h.inverse * crossing + s.z * (1.0f - crossing) : all(s.z);
  h.weight = alpha * T;
  h.next = T - h.weight;
  const I hit = (alpha >= kAlphaLow) & (h.depth > near);
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
        const F dx = pixel.x[k & 3] - s.x, dy = pixel.y[k >> 2] - s.y;
        F t = T[k];
        const Hit h = evaluate(exp2, s, dx, dy, t, near, crossing);
        const F w = h.use ? h.weight : F{};
        for (int c = 0; c < kCount; c++) sum_of[k][c] += w * feature[c];
        if (kDepth > 0) {
          const F z = h.use ? h.depth : F{};
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

// Writes one gradient per used entry of the tile's list: x, y, opacity, A, B, C, z, features.
template <int kCount, int kDepth>
static void backward_tile(int tile, const Pixels& image, const Pixels& back, const int* start,
                          const int* list, const Surfel* surfels, const float* features,
                          int stride, float near, int crossed, const float* background,
                          const float* transmittance, const unsigned* used, float* gradient) {
  const int across = (image.width + kTile - 1) / kTile, tx = tile % across, ty = tile / across;
  F T[kBlocks], behind[kBlocks], v[kBlocks][kCount], v_depth[kBlocks], v_distortion[kBlocks];
  F v_median[kBlocks], last[kBlocks], total[kBlocks], total_depth[kBlocks], before[kBlocks];
  const Centres pixel(tx, ty);
  const float crossing = crossed ? 1.0f : 0.0f;
  const Exp2 exp2;
  for (int k = 0; k < kBlocks; k++) {
    const I shown = (pixel.x[k & 3] < (float)image.width) & (pixel.y[k >> 2] < (float)image.height);
    T[k] = shown ? all(1.0f) : all(-1.0f);
    behind[k] = v_depth[k] = v_distortion[k] = v_median[k] = before[k] = F{};
    last[k] = total[k] = total_depth[k] = F{};
    for (int c = 0; c < kCount; c++) v[k][c] = F{};
  }
  for (unsigned todo = blocks_in_image(tx, ty, image.width, image.height); todo; todo &= todo - 1) {
    const int k = __builtin_ctz(todo);
    const Place at{tx * kTile + (int)block_x(k), ty * kTile + (int)block_y(k)};
    F t, g, shown[kCount + 1], pulled[kCount + 1], b = {};
    take<1>(transmittance, at, image, 1, 1, &t);
    const F cover = 1.0f - t;
    if (back.alpha) {
      take<1>(back.alpha, at, image, 1, 1, &g);
      b = -g * t;
    }
    if (back.colour || kDepth > 0) take_colours<kCount, kDepth>(image.colour, image, at, shown);
    if (back.colour) {
      take_colours<kCount, kDepth>(back.colour, image, at, pulled);
      for (int c = 0; c < kCount; c++) {
        v[k][c] = pulled[c];
        b += pulled[c] * shown[c];
      }
    }
    if (kCount > 3 && back.normal) {
      take<3>(image.normal, at, image, 3, 3, shown);
      take<3>(back.normal, at, image, 3, 3, v[k] + kCount - 3);
      for (int c = 0; c < 3; c++) b += v[k][kCount - 3 + c] * shown[c];
    }
    if (kDepth > 0) {
      last[k] = t;
      if (image.depth >= 0) {
        const F scale = image.expected ? 1.0f / greatest(cover, all(1e-10f)) : all(1.0f);
        if (back.colour) {
          v_depth[k] = pulled[kCount] * scale;
          b += v_depth[k] * shown[kCount];
        }
        const F raw = image.expected ? shown[kCount] * cover : shown[kCount];
        total_depth[k] = raw - t * background[image.depth];
      }
      if (back.median) take<1>(back.median, at, image, 1, 1, v_median + k);
      if (kDepth > 1) {
        total[k] = cover;
        F spread;
        take<1>(back.distortion, at, image, 1, 1, v_distortion + k);
        take<1>(image.distortion, at, image, 1, 1, &spread);
        b += 2.0f * v_distortion[k] * spread;
      }
    }
    behind[k] = b;
  }
  const int end = start[tile + 1];
  fetch(surfels, list, start[tile], end);
  for (int i = start[tile]; i < end; i++) {
    if ((i - start[tile]) % kBatch == 0) fetch(surfels, list, i + kBatch, end);
    const unsigned hit = used[i];
    if (!hit) continue;
    float* out = gradient + (long)i * kGradient;
    const Surfel& s = surfels[list[i]];
    const float* feature = features + (long)list[i] * stride;
    // First what each block's pixels want, then the sums: those stay in registers.
    F weight[kBlocks], slope[kBlocks][4];
    F sigma = {}, mean = {};
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const F dx = pixel.x[k & 3] - s.x, dy = pixel.y[k >> 2] - s.y;
      F t = T[k];
      const Hit h = evaluate(exp2, s, dx, dy, t, near, crossing);
      T[k] = h.use ? h.next : t;
      const F w = h.use ? h.weight : F{};
      F d = {}, vz = {};
      for (int c = 0; c < kCount; c++) d += v[k][c] * feature[c];
      if (kDepth > 0) {
        d += v_depth[k] * h.depth;
        vz = v_depth[k] * w;
        if (kDepth > 1) {
          const F difference = 2.0f * (1.0f - t) - total[k] + w, wz = w * h.depth;
          const F twice = 2.0f * v_distortion[k];
          d += twice * (h.depth * difference + total_depth[k] - 2.0f * before[k] - wz);
          vz += twice * w * difference;
          before[k] += wz;
        }
        if (back.median) {
          const I middle = h.use & (t > 0.5f) & ((h.next <= 0.5f) | (h.next <= last[k] * 1.001f));
          vz += middle ? v_median[k] : F{};
        }
      }
      const F rest = behind[k] - w * d;
      behind[k] = rest;
      // dL/dalpha = T d - rest / (1 - alpha), dL/dsigma = -alpha times that; none at the clamp.
      F vs = h.raw * t * (rest / greatest(h.next, all(kOpaque)) - d);
      vs = (h.use & (h.raw <= kAlphaHigh)) ? vs : F{};
      sigma += vs;
      const F on_plane = h.inside ? vs : F{};
      const F scaled = on_plane * h.inverse;
      F gz = -scaled * least(h.plane, all(1e18f));  // never infinite, times zero is zero
      if (kDepth > 0) {
        const F crossed_depth = h.inside ? vz * crossing : F{};
        mean += vz - crossed_depth;
        gz -= crossed_depth * h.inverse * h.inverse;
      }
      weight[k] = w;
      slope[k][0] = scaled * h.u;
      slope[k][1] = scaled * h.v;
      slope[k][2] = gz;
      slope[k][3] = vs - on_plane;
    }
    F sf[kCount] = {};
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      for (int c = 0; c < kCount; c++) sf[c] += v[k][c] * weight[k];
    }
    F disc_x = {}, disc_y = {}, ax = {}, ay = {}, az = {};
    F bx = {}, by = {}, bz = {}, cx = {}, cy = {}, cz = {};
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const F dx = pixel.x[k & 3] - s.x, dy = pixel.y[k >> 2] - s.y;
      const F gx = slope[k][0], gy = slope[k][1], gz = slope[k][2], disc = slope[k][3];
      ax += gx;
      ay += gy;
      az += gz;
      bx += gx * dx;
      by += gy * dx;
      bz += gz * dx;
      cx += gx * dy;
      cy += gy * dy;
      cz += gz * dy;
      disc_x += disc * dx;
      disc_y += disc * dy;
    }
    disc_x *= -s.filter;  // sigma = k |pixel - centre|^2 / 2
    disc_y *= -s.filter;
    sigma *= -1.0f / s.opacity;  // alpha = opacity exp(-sigma)
    store(out, sums(disc_x, disc_y, sigma, ax, ay, az, bx, by));
    store(out + 8, sums(bz, cx, cy, cz, mean, sf[0], sf[1], sf[2]));
    if (kCount > 3) store(out + 16, sums(sf[3], sf[4], sf[5], F{}));
    else store(out + 16, F4{});
  }
}

}  // namespace surfels
}  // namespace twinloop
"""
