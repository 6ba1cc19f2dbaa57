"""C++ text of the projection and colour of 3D Gaussians, both ways, on top of `harmonics`.

Eight Gaussians at a time, in single precision. Perspective projection is EWA (Zwicker et al. 2002),
as gsplat does it: rows u and v of the image's Jacobian, turned into the Gaussian's own axes and
scaled by them, give the covariance u.u, u.v, v.v, whose determinant |u x v|^2 does not cancel.

The camera's gradient is summed per chunk of Gaussians, so that it does not depend on how chunks are
spread over threads.
"""

CHUNK = 512
"""Gaussians that share one row of the camera's gradient, a multiple of eight."""
CAMERA = 15
"""Floats of that row: rotation, translation, the camera's centre."""
LENS = (
    *(f"rotation{i}" for i in range(9)),
    *(f"translation{i}" for i in range(3)),
    *(f"eye{i}" for i in range(3)),
    "fx",
    "fy",
    "cx",
    "cy",
    "width",
    "height",
    "near",
    "far",
    "eps2d",
)
"""Fields of `Lens` below, floats: the camera (m, px) and what is added to the covariance, px^2."""
FIELDS = (
    "count",
    "antialiased",
    "bases",
    "coefficients",
    "first",
    "first_colors",
    "lens",
    "means",
    "quats",
    "scales",
    "opacities",
    "colors",
    "geometry",
    "depths",
    "features",
    "rank",
    "v_geometry",
    "v_depths",
    "v_features",
    "v_means",
    "v_quats",
    "v_scales",
    "v_opacities",
    "v_colors",
    "v_camera",
)
"""Fields of `Scene` below: whole numbers of 64 bits, from `lens` on addresses."""

SOURCE = r"""
namespace twinloop {
namespace projection {

constexpr int kChunk = 512, kCamera = 15;
// Variance, px^2, and position, px, from which on a Gaussian has no covariance in single precision:
// products of four standard deviations would overflow. Such are not drawn.
constexpr float kWidest = 1e18f, kFarthest = 1e10f;
typedef int I8 __attribute__((vector_size(32)));

struct Lens {
  float R[9], t[3], eye[3], fx, fy, cx, cy, width, height, near, far, eps2d;
};
// All that the passes work on; see FIELDS. `bases` harmonics of `coefficients` are used, or none
// where colours are no harmonics; v_camera may be null. `first`: gradients are set, not added to.
struct Scene {
  long count, antialiased, bases, coefficients, first, first_colors;
  const Lens* lens;
  const float *means, *quats, *scales, *opacities, *colors;
  float *geometry, *depths, *features;  // (n, 6), (n), (n, 4): colour and depth
  const int* rank;                      // negative where nothing has a gradient
  const float *v_geometry, *v_depths, *v_features;  // v_depths may be null, for zero
  float *v_means, *v_quats, *v_scales, *v_opacities, *v_colors, *v_camera;
};

struct Eight {  // Gaussians in a row, the last repeated where there are fewer
  long at[8];
  int count;
  TL_INLINE_MEMBER F8 take(const float* from, int stride, int k) const {
    F8 v;
    for (int l = 0; l < 8; l++) v[l] = from[stride * at[l] + k];
    return v;
  }
  TL_INLINE_MEMBER void put(const F8& v, float* to, int stride, int k) const {
    for (int l = 0; l < count; l++) to[stride * at[l] + k] = v[l];
  }
  TL_INLINE_MEMBER void give(const F8& v, float* to, int stride, int k, bool first) const {
    if (first) return put(v, to, stride, k);
    for (int l = 0; l < count; l++) to[stride * at[l] + k] += v[l];
  }
};
TL_INLINE Eight eight(int from, int to) {
  Eight e;
  e.count = to - from < 8 ? to - from : 8;
  for (int l = 0; l < 8; l++) e.at[l] = from + (l < e.count ? l : e.count - 1);
  return e;
}
TL_INLINE F8 root(F8 v) { return __builtin_elementwise_sqrt(v); }
TL_INLINE F8 both(float v) { return F8{} + v; }
TL_INLINE F8 dot(const F8* a, const F8* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
TL_INLINE void cross(const F8* a, const F8* b, F8* c) {
  for (int k = 0; k < 3; k++)
    c[k] = a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3];
}

struct Projected {
  F8 m[3], p[3], rz;        // mean in the world and from the camera, 1 / depth
  I8 seen, free_x, free_y;  // can be drawn; where the linearisation is not clamped
  F8 x, y, ku, kv;          // where that is, and the Jacobian's factors
  F8 at_x, at_y;            // of the mean in the image
  F8 row_u[3], row_v[3];
  F8 q[4], shorter, W[9];   // unit quaternion and rotation to the world
  F8 s[3], wu[3], wv[3], u[3], v[3];
  F8 a, b, c, area[3], plain, det, ratio, opacity;
};
TL_INLINE void place(const Scene& in, const Lens& e, const Eight& at, Projected& o) {
  for (int k = 0; k < 3; k++) o.m[k] = at.take(in.means, 3, k);
  for (int k = 0; k < 3; k++) {
    const float* R = e.R + 3 * k;
    o.p[k] = R[0] * o.m[0] + R[1] * o.m[1] + R[2] * o.m[2] + e.t[k];
  }
  o.seen = (o.p[2] > e.near) & (o.p[2] < e.far);
  o.rz = 1.0f / (o.seen ? o.p[2] : both(1.0f));
  // Clamped to a little outside the image, as everywhere in 3DGS.
  const float wide = 0.15f * e.width / e.fx, high = 0.15f * e.height / e.fy;
  const F8 ux = o.p[0] * o.rz, uy = o.p[1] * o.rz;
  o.x = least(greatest(ux, both(-e.cx / e.fx - wide)), both((e.width - e.cx) / e.fx + wide));
  o.y = least(greatest(uy, both(-e.cy / e.fy - high)), both((e.height - e.cy) / e.fy + high));
  o.free_x = o.x == ux;
  o.free_y = o.y == uy;
  o.ku = e.fx * o.rz;
  o.kv = e.fy * o.rz;
  F8 square = {}, longest = {};
  for (int k = 0; k < 4; k++) {
    o.q[k] = at.take(in.quats, 4, k);
    longest = greatest(longest, __builtin_elementwise_abs(o.q[k]));
  }
  const F8 first = longest > 1e15f ? both(1e-20f) : both(1.0f);  // squares do not overflow
  for (int k = 0; k < 4; k++) {
    o.q[k] *= first;
    square += o.q[k] * o.q[k];
  }
  o.shorter = 1.0f / greatest(root(square), both(1e-12f));
  for (int k = 0; k < 4; k++) o.q[k] *= o.shorter;
  o.shorter *= first;
  const F8 w = o.q[0], x = o.q[1], y = o.q[2], z = o.q[3];
  const F8 W[9] = {1 - 2 * (y * y + z * z), 2 * (x * y - w * z),     2 * (x * z + w * y),
                   2 * (x * y + w * z),     1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                   2 * (x * z - w * y),     2 * (y * z + w * x),     1 - 2 * (x * x + y * y)};
  for (int k = 0; k < 9; k++) o.W[k] = W[k];
  for (int k = 0; k < 3; k++) {
    o.row_u[k] = o.ku * (e.R[k] - o.x * e.R[6 + k]);
    o.row_v[k] = o.kv * (e.R[3 + k] - o.y * e.R[6 + k]);
  }
  for (int k = 0; k < 3; k++) {
    o.s[k] = at.take(in.scales, 3, k);
    o.wu[k] = W[k] * o.row_u[0] + W[3 + k] * o.row_u[1] + W[6 + k] * o.row_u[2];
    o.wv[k] = W[k] * o.row_v[0] + W[3 + k] * o.row_v[1] + W[6 + k] * o.row_v[2];
    o.u[k] = o.wu[k] * o.s[k];
    o.v[k] = o.wv[k] * o.s[k];
  }
  o.a = dot(o.u, o.u);
  o.b = dot(o.u, o.v);
  o.c = greatest(dot(o.v, o.v), both(1e-15f));
  cross(o.u, o.v, o.area);
  o.plain = dot(o.area, o.area);
  o.det = greatest(o.plain + e.eps2d * (o.a + o.c) + e.eps2d * e.eps2d, both(1e-30f));
  o.ratio = o.plain / o.det;
  o.opacity = at.take(in.opacities, 1, 0);
  o.at_x = e.fx * o.p[0] * o.rz + e.cx;
  o.at_y = e.fy * o.p[1] * o.rz + e.cy;
  // Not so for what is no number.
  o.seen &= (o.a < kWidest) & (o.c < kWidest) & (__builtin_elementwise_abs(o.at_x) < kFarthest) &
            (__builtin_elementwise_abs(o.at_y) < kFarthest);
}
// From the camera's centre to the mean: unit direction; returns 1 / distance.
TL_INLINE F8 look(const Lens& e, const F8* m, F8* d) {
  for (int k = 0; k < 3; k++) d[k] = m[k] - e.eye[k];
  const F8 closer = 1.0f / greatest(root(dot(d, d)), both(1e-12f));
  for (int k = 0; k < 3; k++) d[k] *= closer;
  return closer;
}

TL_INLINE void project(const Scene& in, int from, int to) {
  const Lens e = *in.lens;
  const int bases = (int)in.bases;
  for (int i = from; i < to; i += 8) {
    const Eight at = eight(i, to);
    Projected o;
    place(in, e, at, o);
    const F8 c = o.c + e.eps2d, thin = 1.0f / c;
    const F8 faint = in.antialiased ? root(greatest(o.ratio, both(1e-12f))) : both(1.0f);
    const F8 geometry[6] = {o.at_x, o.at_y, c / o.det, -o.b * thin, thin, o.opacity * faint};
    for (int k = 0; k < 6; k++) at.put(o.seen ? geometry[k] : F8{}, in.geometry, 6, k);
    const F8 depth = o.seen ? o.p[2] : F8{};
    at.put(depth, in.depths, 1, 0);
    if (!bases) continue;
    F8 d[3], b[16];
    look(e, o.m, d);
    harmonics<F8>(bases, d, b, nullptr);
    for (int l = 0; l < at.count; l++) {
      const float* sh = in.colors + 3 * in.coefficients * at.at[l];
      float colour[3] = {0.5f, 0.5f, 0.5f}, *f = in.features + 4 * at.at[l];
      for (int k = 0; k < bases; k++)
        for (int j = 0; j < 3; j++) colour[j] += b[k][l] * sh[3 * k + j];
      for (int j = 0; j < 3; j++) f[j] = depth[l] > 0.0f && colour[j] > 0.0f ? colour[j] : 0.0f;
      f[3] = depth[l];
    }
  }
}

// Zero gradients of those that show nowhere.
TL_INLINE void clear(const Scene& in, const Eight& at) {
  if (in.first)
    for (int l = 0; l < at.count; l++) {
      for (int k = 0; k < 3; k++)
        in.v_means[3 * at.at[l] + k] = in.v_scales[3 * at.at[l] + k] = 0.0f;
      for (int k = 0; k < 4; k++) in.v_quats[4 * at.at[l] + k] = 0.0f;
      in.v_opacities[at.at[l]] = 0.0f;
    }
  if (in.bases && in.first_colors)
    for (int l = 0; l < at.count; l++)
      for (int k = 0; k < 3 * in.coefficients; k++)
        in.v_colors[3 * in.coefficients * at.at[l] + k] = 0.0f;
}

// Gradients of the coefficients and, returned in `pull`, of the mean by the colour's direction.
TL_INLINE void shade_adjoint(const Scene& in, const Lens& e, const Eight& at, const Projected& o,
                             F8* pull) {
  const int bases = (int)in.bases, row = (int)(3 * in.coefficients);
  F8 d[3], b[16], db[16][3], along[16] = {}, vd[3] = {};
  const F8 closer = look(e, o.m, d);
  harmonics(bases, d, b, db);
  for (int l = 0; l < at.count; l++) {
    const float *f = in.features + 4 * at.at[l], *g = in.v_features + 4 * at.at[l];
    const float* sh = in.colors + row * at.at[l];
    float v[3], *out = in.v_colors + row * at.at[l];
    for (int j = 0; j < 3; j++) v[j] = f[j] > 0.0f ? g[j] : 0.0f;
    for (int k = 0; k < bases; k++) {
      along[k][l] = sh[3 * k] * v[0] + sh[3 * k + 1] * v[1] + sh[3 * k + 2] * v[2];
      const float basis = b[k][l];
      for (int j = 0; j < 3; j++)
        out[3 * k + j] = in.first_colors ? basis * v[j] : out[3 * k + j] + basis * v[j];
    }
    if (in.first_colors)
      for (int k = 3 * bases; k < row; k++) out[k] = 0.0f;
  }
  for (int k = 1; k < bases; k++)
    for (int j = 0; j < 3; j++) vd[j] += db[k][j] * along[k];
  const F8 radial = dot(vd, d);
  for (int j = 0; j < 3; j++) pull[j] = (vd[j] - d[j] * radial) * closer;
}

// Of what is not drawn nothing is kept, whatever it is: zero times infinity is no number.
TL_INLINE F8 kept(const I8& real, const F8& v) { return real ? v : F8{}; }
TL_INLINE void adjoint_of_eight(const Scene& in, const Lens& e, const Eight& at, F8* v_camera) {
  Projected o;
  place(in, e, at, o);
  I8 real = o.seen;
  for (int l = 0; l < 8; l++) real[l] = l < at.count && in.rank[at.at[l]] >= 0 ? real[l] : 0;
  F8 g[6], pull[3] = {};
  for (int k = 0; k < 6; k++) g[k] = real ? at.take(in.v_geometry, 6, k) : F8{};
  F8 v_depth = in.v_depths ? at.take(in.v_depths, 1, 0) : F8{};
  if (in.bases) {
    shade_adjoint(in, e, at, o, pull);
    v_depth = at.take(in.v_features, 4, 3);
  }
  // geometry: x, y, p = c / det, s = -b / c, q = 1 / c, opacity
  const F8 c = o.c + e.eps2d, thin = 1.0f / c, closed = 1.0f / o.det, p = c * closed;
  F8 v_det = -g[2] * p * closed, v_plain = {}, v_opacity = g[5];
  F8 vc = g[2] * closed + (g[3] * o.b * thin - g[4] * thin) * thin;
  if (in.antialiased) {
    const F8 faint = root(greatest(o.ratio, both(1e-12f)));
    const F8 v_ratio = o.ratio > 1e-12f ? 0.5f * g[5] * o.opacity / faint : F8{};
    v_opacity *= faint;
    v_plain = v_ratio * closed;
    v_det -= v_ratio * o.ratio * closed;
  }
  v_det = o.det > 1e-30f ? v_det : F8{};
  v_plain += v_det;
  const F8 va = v_det * e.eps2d, vb = -g[3] * thin;
  vc += v_det * e.eps2d;
  vc = o.c > 1e-15f ? vc : F8{};
  F8 v_area[3], vu[3], vv[3], row_u[3], row_v[3], vW[9];
  for (int k = 0; k < 3; k++) v_area[k] = 2.0f * v_plain * o.area[k];
  cross(o.v, v_area, vu);
  cross(v_area, o.u, vv);
  for (int k = 0; k < 3; k++) {
    vu[k] += 2.0f * va * o.u[k] + vb * o.v[k];
    vv[k] += 2.0f * vc * o.v[k] + vb * o.u[k];
    at.give(kept(real, vu[k] * o.wu[k] + vv[k] * o.wv[k]), in.v_scales, 3, k, in.first);
    vu[k] *= o.s[k];
    vv[k] *= o.s[k];
  }
  for (int k = 0; k < 3; k++) {
    for (int j = 0; j < 3; j++) vW[3 * k + j] = o.row_u[k] * vu[j] + o.row_v[k] * vv[j];
    row_u[k] = kept(real, dot(o.W + 3 * k, vu));
    row_v[k] = kept(real, dot(o.W + 3 * k, vv));
  }
  const F8 w = o.q[0], x = o.q[1], y = o.q[2], z = o.q[3];
  const F8 vq[4] = {
      2 * (-z * vW[1] + y * vW[2] + z * vW[3] - x * vW[5] - y * vW[6] + x * vW[7]),
      2 * (y * vW[1] + z * vW[2] + y * vW[3] - 2 * x * vW[4] - w * vW[5] + z * vW[6] + w * vW[7] -
           2 * x * vW[8]),
      2 * (-2 * y * vW[0] + x * vW[1] + w * vW[2] + x * vW[3] + z * vW[5] - w * vW[6] +
           z * vW[7] - 2 * y * vW[8]),
      2 * (-2 * z * vW[0] - w * vW[1] + x * vW[2] + w * vW[3] - 2 * z * vW[4] + y * vW[5] +
           x * vW[6] + y * vW[7])};
  const F8 along = w * vq[0] + x * vq[1] + y * vq[2] + z * vq[3];
  for (int k = 0; k < 4; k++)
    at.give(kept(real, (vq[k] - o.q[k] * along) * o.shorter), in.v_quats, 4, k, in.first);
  at.give(kept(real, v_opacity), in.v_opacities, 1, 0, in.first);
  const F8 ku = kept(real, o.ku), kv = kept(real, o.kv);
  F8 ahead_u = {}, ahead_v = {}, vku = {}, vkv = {};
  for (int k = 0; k < 3; k++) {
    ahead_u += row_u[k] * e.R[6 + k];
    ahead_v += row_v[k] * e.R[6 + k];
    vku += row_u[k] * (e.R[k] - o.x * e.R[6 + k]);
    vkv += row_v[k] * (e.R[3 + k] - o.y * e.R[6 + k]);
  }
  const F8 vx = e.fx * g[0] - (o.free_x ? o.ku * ahead_u : F8{});  // of p / depth
  const F8 vy = e.fy * g[1] - (o.free_y ? o.kv * ahead_v : F8{});
  const F8 v_rz = vx * o.p[0] + vy * o.p[1] + e.fx * vku + e.fy * vkv;
  const F8 vp[3] = {kept(real, vx * o.rz), kept(real, vy * o.rz),
                    kept(real, v_depth - v_rz * o.rz * o.rz)};
  for (int k = 0; k < 3; k++) {
    const F8 way = kept(real, pull[k]);
    at.give(e.R[k] * vp[0] + e.R[3 + k] * vp[1] + e.R[6 + k] * vp[2] + way, in.v_means, 3, k,
            in.first);
    for (int j = 0; j < 3; j++) v_camera[3 * k + j] += vp[k] * o.m[j];
    v_camera[k] += ku * row_u[k];
    v_camera[3 + k] += kv * row_v[k];
    v_camera[6 + k] -= ku * o.x * row_u[k] + kv * o.y * row_v[k];
    v_camera[9 + k] += vp[k];
    v_camera[12 + k] -= way;
  }
}

// Gradients of Gaussians [from, to), `from` the first of a chunk, and their chunks' of the camera.
TL_INLINE void project_adjoint(const Scene& in, int from, int to) {
  const Lens e = *in.lens;
  for (int chunk = from; chunk < to; chunk += kChunk) {
    const int end = chunk + kChunk < to ? chunk + kChunk : to;
    F8 v_camera[kCamera] = {};
    for (int i = chunk; i < end; i += 8) {
      const Eight at = eight(i, end);
      bool shows = false;
      for (int l = 0; l < 8; l++) shows |= in.rank[at.at[l]] >= 0;
      if (shows) adjoint_of_eight(in, e, at, v_camera);
      else clear(in, at);
    }
    if (!in.v_camera) continue;
    for (int k = 0; k < kCamera; k++) {
      const F8 v = v_camera[k];
      in.v_camera[(long)(chunk / kChunk) * kCamera + k] =
          ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
  }
}

}  // namespace projection
}  // namespace twinloop
"""
