"""C++ source of the backward pass of the compositor of surfels, on top of `surfels`.

It runs front to back and needs nothing but the final image. With g = dL/dC and
gT = dL/dT_final, let B = g.C_final + gT T_final; at each surfel, with weight w = alpha T and
d = g.feature, B -= w d leaves what lies behind, and dL/dalpha = T d - B / (1 - alpha).

Distortion is gsplat's (L1, sorted): D = 2 sum_i w_i (z_i W_<i - M_<i) with W and M the sums of w
and w z in front. dD/dw_i = 2 (z_i (W_<i - W_>i) - M_<i + M_>i), dD/dz_i = 2 w_i (W_<i - W_>i); the
sums behind follow from the final ones. D is of degree two in w, so it enters B twice.
"""

SOURCE = r"""
namespace twinloop {
namespace surfels {

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
    // In loops of short chains, of which more are under way at once; sums stay in registers.
    F weight[kBlocks], slope[kBlocks][4];
    Meeting met[kBlocks];
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      met[k] = meet(exp2, s, pixel.x[k & 3] - s.x, pixel.y[k >> 2] - s.y);
    }
    F sigma = {}, mean = {};
    for (unsigned todo = hit; todo; todo &= todo - 1) {
      const int k = __builtin_ctz(todo);
      const Meeting& m = met[k];
      const F z = depth_of(s, m.inverse, m.plane, crossing);
      F t = T[k];
      const Hit h = evaluate(m.raw, z, t, near);
      T[k] = h.use ? h.next : t;
      const F w = h.use ? h.weight : F{};
      F d = {}, vz = {};
      for (int c = 0; c < kCount; c++) d += v[k][c] * feature[c];
      if (kDepth > 0) {
        d += v_depth[k] * z;
        vz = v_depth[k] * w;
        if (kDepth > 1) {
          const F difference = 2.0f * (1.0f - t) - total[k] + w, wz = w * z;
          const F twice = 2.0f * v_distortion[k];
          d += twice * (z * difference + total_depth[k] - 2.0f * before[k] - wz);
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
      F vs = m.raw * t * (rest / greatest(h.next, all(kOpaque)) - d);
      vs = (h.use & (m.raw <= kAlphaHigh)) ? vs : F{};
      sigma += vs;
      const I inside = m.plane >= 0.0f;
      const F on_plane = inside ? vs : F{};
      const F scaled = on_plane * m.inverse;
      F gz = -scaled * least(m.plane, all(1e18f));  // never infinite, times zero is zero
      if (kDepth > 0) {
        const F crossed_depth = inside ? vz * crossing : F{};
        mean += vz - crossed_depth;
        gz -= crossed_depth * m.inverse * m.inverse;
      }
      weight[k] = w;
      slope[k][0] = scaled * m.u;
      slope[k][1] = scaled * m.v;
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
