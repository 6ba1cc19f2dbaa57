"""C++ source of the projection of surfels, on top of `surfels` and `harmonics`.

Geometry is in double precision, since a surfel seen nearly edge on loses digits, four surfels at a
time. The record holds N = M^-1 of the rows M = (m0, m1, z) of K [tu tv p], shifted to the surfel's
centre in the image: (u, v, 1) / depth = N (dx, dy, 1). Colours are real spherical harmonics to
degree 3 plus a half, not below 0.
"""

SOURCE = r"""
namespace twinloop {
namespace surfels {

constexpr double kEdgeOn = 1e-4;  // |cos| of normal and ray below which a surfel has no area
constexpr double kThin = 1e-4;    // px of standard deviation below which it has none
constexpr float kEverywhere = 1e6f;

// Four surfels at a time.
typedef double D __attribute__((vector_size(32)));
typedef long long L __attribute__((vector_size(32)));
TL_INLINE D root(D v) { return __builtin_elementwise_sqrt(v); }
TL_INLINE D rounded(D v) {
  return __builtin_convertvector(__builtin_convertvector(v, F4), D);
}
struct Four {  // numbers of surfels, the last repeated where there are fewer
  int at[4], count;
  TL_INLINE_MEMBER D take(const float* from, long stride, int k) const {
    return D{from[stride * at[0] + k], from[stride * at[1] + k], from[stride * at[2] + k],
             from[stride * at[3] + k]};
  }
  TL_INLINE_MEMBER void put(D v, float* to, long stride, int k) const {
    for (int l = 0; l < count; l++) to[stride * at[l] + k] = (float)v[l];
  }
};

struct Lens {
  double R[9], t[3], fx, fy, cx, cy;
};
struct Placed {
  D q[4], length, W[9], G[9];  // unit quaternion; rotation to the world and to the camera
  D su, sv, p[3], X[3], Y[3], z[3];
  D ix, iy;        // image of the mean
  D x, y;          // centre, rounded to a float
  D m0[3], m1[3];  // rows, shifted to the centre
  D below;         // z0^2 + z1^2 - z2^2; its sign says whether one sigma is an ellipse
  D facing;        // normal . p
  L solid;
};

TL_INLINE void mean_of(const float* camera, const float* mean, double* p) {
  for (int i = 0; i < 3; i++)
    p[i] = (double)camera[3 * i] * mean[0] + (double)camera[3 * i + 1] * mean[1] +
           (double)camera[3 * i + 2] * mean[2] + camera[9 + i];
}
TL_INLINE Lens lens_of(const float* camera) {
  Lens c;
  for (int i = 0; i < 9; i++) c.R[i] = camera[i];
  for (int i = 0; i < 3; i++) c.t[i] = camera[9 + i];
  c.fx = camera[12], c.fy = camera[13], c.cx = camera[14], c.cy = camera[15];
  return c;
}

TL_INLINE void place_surfels(const Lens& c, const Four& four, const float* means,
                             const float* quats, const float* scales, int scale_stride,
                             Placed& s) {
  D mean[3];
  for (int i = 0; i < 3; i++) mean[i] = four.take(means, 3, i);
  for (int i = 0; i < 3; i++)
    s.p[i] = c.R[3 * i] * mean[0] + c.R[3 * i + 1] * mean[1] + c.R[3 * i + 2] * mean[2] + c.t[i];
  D square = {};
  for (int i = 0; i < 4; i++) {
    s.q[i] = four.take(quats, 4, i);
    square += s.q[i] * s.q[i];
  }
  s.length = root(greatest(square, D{} + 1e-24));
  const D shorter = 1.0 / s.length;
  for (int i = 0; i < 4; i++) s.q[i] *= shorter;
  const D w = s.q[0], x = s.q[1], y = s.q[2], z = s.q[3];
  const D W[9] = {1 - 2 * (y * y + z * z), 2 * (x * y - w * z),     2 * (x * z + w * y),
                  2 * (x * y + w * z),     1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                  2 * (x * z - w * y),     2 * (y * z + w * x),     1 - 2 * (x * x + y * y)};
  for (int i = 0; i < 9; i++) s.W[i] = W[i];
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      s.G[3 * i + j] = c.R[3 * i] * W[j] + c.R[3 * i + 1] * W[3 + j] + c.R[3 * i + 2] * W[6 + j];
  s.su = four.take(scales, scale_stride, 0), s.sv = four.take(scales, scale_stride, 1);
  const D X[3] = {s.G[0] * s.su, s.G[1] * s.sv, s.p[0]};
  const D Y[3] = {s.G[3] * s.su, s.G[4] * s.sv, s.p[1]};
  const D Z[3] = {s.G[6] * s.su, s.G[7] * s.sv, s.p[2]};
  const D ux = s.p[0] / s.p[2], uy = s.p[1] / s.p[2];
  s.ix = c.fx * ux + c.cx, s.iy = c.fy * uy + c.cy;
  s.below = Z[0] * Z[0] + Z[1] * Z[1] - Z[2] * Z[2];
  D ex = {}, ey = {};  // from the mean's image to gsplat's means2d
  for (int k = 0; k < 3; k++) {
    s.X[k] = X[k], s.Y[k] = Y[k], s.z[k] = Z[k];
    s.m0[k] = c.fx * (X[k] - ux * Z[k]);
    s.m1[k] = c.fy * (Y[k] - uy * Z[k]);
    if (k < 2) ex += s.m0[k] * Z[k], ey += s.m1[k] * Z[k];
  }
  const L ellipse = s.below < 0.0;
  const D share = ellipse ? 1.0 / s.below : D{};
  s.x = rounded(s.ix + ex * share), s.y = rounded(s.iy + ey * share);
  for (int k = 0; k < 3; k++) {
    s.m0[k] -= (s.x - s.ix) * Z[k];
    s.m1[k] -= (s.y - s.iy) * Z[k];
  }
  s.facing = s.G[2] * s.p[0] + s.G[5] * s.p[1] + s.G[8] * s.p[2];
  const D thin = least(__builtin_elementwise_abs(s.su), __builtin_elementwise_abs(s.sv)) *
                 (c.fx < c.fy ? c.fx : c.fy);
  const D far = s.p[0] * s.p[0] + s.p[1] * s.p[1] + s.p[2] * s.p[2];
  s.solid = (s.facing * s.facing > kEdgeOn * kEdgeOn * far) & (thin > kThin * s.p[2]);
}

// Columns of N: of dx, of dy and the constant; zero where the surfel is not solid.
TL_INLINE void invert(const Placed& s, D* B, D* C, D* A) {
  for (int k = 0; k < 3; k++) {
    const int i = (k + 1) % 3, j = (k + 2) % 3;
    B[k] = s.m1[i] * s.z[j] - s.m1[j] * s.z[i];
    C[k] = s.z[i] * s.m0[j] - s.z[j] * s.m0[i];
    A[k] = s.m0[i] * s.m1[j] - s.m0[j] * s.m1[i];
  }
  const D det = s.m0[0] * B[0] + s.m0[1] * B[1] + s.m0[2] * B[2];
  const D scale = s.solid ? 1.0 / (s.solid ? det : D{} + 1.0) : D{};
  for (int k = 0; k < 3; k++) A[k] *= scale, B[k] *= scale, C[k] *= scale;
}

struct Extent {  // of the outline of u^2 + v^2 <= level and the disc, px; see `Outline`
  D disc, x, y, half_height, slope, reach, shrink, tip, rx, ry;
  L shown;  // whether any of it is in the image
};
TL_INLINE Extent extent_of(const Placed& s, D level, double strength, int width, int height) {
  // An ellipse with covariance sxx, sxy, syy if all is before the camera, or it may be anywhere.
  const D *z = s.z, *m = s.m0, *n = s.m1, square = z[2] * z[2];
  D reach = square - level * (z[0] * z[0] + z[1] * z[1]);
  const L ahead = reach > 1e-3 * square;
  reach = ahead ? 1.0 / (ahead ? reach : D{} + 1.0) : D{};
  const D ex = (m[2] * z[2] - level * (m[0] * z[0] + m[1] * z[1])) * reach;
  const D ey = (n[2] * z[2] - level * (n[0] * z[0] + n[1] * z[1])) * reach;
  D sxx = ex * ex + (level * (m[0] * m[0] + m[1] * m[1]) - m[2] * m[2]) * reach;
  D syy = ey * ey + (level * (n[0] * n[0] + n[1] * n[1]) - n[2] * n[2]) * reach;
  const D sxy = ex * ey + (level * (m[0] * n[0] + m[1] * n[1]) - m[2] * n[2]) * reach;
  sxx = ahead ? greatest(sxx, D{}) + 1e-4 : D{} + 1e12;
  syy = ahead ? greatest(syy, D{}) + 1e-4 : D{} + 1e12;
  Extent e;
  const D half_width = root(sxx), half = 0.5 * (sxx - syy);
  e.half_height = root(syy);
  const D shorter = 0.5 * (sxx + syy) - root(half * half + sxy * sxy);
  e.disc = root(level / strength);
  // Left out where the ellipse surely holds it: its shorter half axis reaches past it.
  const D past = e.disc + root(ex * ex + ey * ey);
  e.disc = (s.solid & (shorter > past * past)) ? D{} : e.disc;
  const D left = greatest(half_width - ex, e.disc), right = greatest(half_width + ex, e.disc);
  const D top = greatest(e.half_height - ey, e.disc);
  const D bottom = greatest(e.half_height + ey, e.disc);
  e.rx = greatest(left, right);
  e.ry = greatest(top, bottom);
  e.x = s.x + ex;
  e.y = s.y + ey;
  e.slope = sxy / syy;
  e.reach = sxx - sxy * e.slope;
  e.shrink = e.reach / syy;
  e.tip = sxy / half_width;
  e.half_height = s.solid ? e.half_height : D{} - 1.0;
  e.shown = (s.x + right > 0.0) & (s.x - left < (double)width) & (s.y + bottom > 0.0) &
            (s.y - top < (double)height);
  return e;
}

// From the camera's centre to the mean: unit direction; returns the distance.
TL_INLINE float direction_to(const float* camera, const float* mean, float* d) {
  float square = 0.0f;
  for (int j = 0; j < 3; j++) {
    d[j] = mean[j] + camera[j] * camera[9] + camera[3 + j] * camera[10] +
           camera[6 + j] * camera[11];
    square += d[j] * d[j];
  }
  const float length = __builtin_sqrtf(square > 1e-24f ? square : 1e-24f);
  for (int j = 0; j < 3; j++) d[j] /= length;
  return length;
}

// Depths (m), zero where nothing shows.
TL_INLINE void find(int count, const float* camera, float near, float far, const float* means,
                    const float* opacities, float* depths) {
  for (int i = 0; i < count; i++) {
    double p[3];
    mean_of(camera, means + 3l * i, p);
    depths[i] = p[2] > near && p[2] < far && opacities[i] >= kAlphaLow ? (float)p[2] : 0.0f;
  }
}

struct Inputs {
  const float *camera, *means, *quats, *scales, *opacities, *colors;
  int scale_stride, bases, coefficients, channels, color_stride;
};

// Place of each of `count` surfels in `order`, which has `found`; -1 where it has none.
TL_INLINE void rank(int count, int found, const int* order, int* ranks) {
  for (int i = 0; i < count; i++) ranks[i] = -1;
  for (int n = 0; n < found; n++) ranks[order[n]] = n;
}

// Records of four surfels, each at its rank; radii (n, 2) and centres (n, 2) px.
TL_INLINE void project_four(const Lens& lens, const Four& four, const int* ranks,
                            const Inputs& in, float strength, float clip, int width, int height,
                            float* records, int* radii, float* centres) {
  Placed s;
  place_surfels(lens, four, in.means, in.quats, in.scales, in.scale_stride, s);
  D level;
  for (int l = 0; l < 4; l++)
    level[l] = 2.0f * __builtin_logf(255.0f * in.opacities[four.at[l]]) + 1e-5f;
  const Extent e = extent_of(s, level, strength, width, height);
  D A[3], B[3], C[3];
  invert(s, B, C, A);
  for (int l = 0; l < four.count; l++) {
    const int i = four.at[l];
    Surfel& r = ((Surfel*)records)[ranks[i]];
    const float rx = (float)e.rx[l], ry = (float)e.ry[l];
    if (!e.shown[l] || (rx <= clip && ry <= clip)) {
      r.outline.half_height = -1.0f;
      r.disc = 0.0f;
      continue;
    }
    centres[2l * i] = r.x = (float)s.x[l];
    centres[2l * i + 1] = r.y = (float)s.y[l];
    radii[2l * i] = (int)__builtin_ceilf(rx < kEverywhere ? rx : kEverywhere);
    radii[2l * i + 1] = (int)__builtin_ceilf(ry < kEverywhere ? ry : kEverywhere);
    r.disc = (float)e.disc[l];
    r.outline = Outline{(float)e.x[l],     (float)e.y[l],      (float)e.half_height[l],
                        (float)e.slope[l], (float)e.reach[l],  (float)e.shrink[l],
                        (float)e.tip[l]};
    r.opacity = in.opacities[i];
    r.filter = strength;
    r.z = (float)s.p[2][l];
    for (int k = 0; k < 3; k++) {
      r.A[k] = (float)A[k][l];
      r.B[k] = (float)B[k][l];
      r.C[k] = (float)C[k][l];
    }
    if (!s.solid[l]) {  // edge on or without area: (u, v) out of reach, so that the disc shows
      r.A[0] = 1e9f;
      r.A[2] = 1.0f / r.z;
    }
    if (in.bases > 0) {
      float d[3], b[16];
      direction_to(in.camera, in.means + 3l * i, d);
      harmonics<float>(in.bases, d, b, nullptr);
      const float* sh = in.colors + 3l * in.coefficients * i;
      for (int c = 0; c < 3; c++) {
        float v = 0.5f;
        for (int k = 0; k < in.bases; k++) v += b[k] * sh[3 * k + c];
        r.feature[c] = v > 0.0f ? v : 0.0f;
      }
    } else {
      for (int c = 0; c < 3; c++)
        r.feature[c] = c < in.channels ? in.colors[(long)in.color_stride * i + c] : 0.0f;
    }
    const double side = s.facing[l] < 0.0 ? 1.0 : -1.0;
    for (int c = 0; c < 3; c++) r.feature[3 + c] = (float)(side * s.W[3 * c + 2][l]);
  }
}

// The surfels [from, to) that `want`, four by four. `soon` fetches what a later one will want.
constexpr int kSoon = 16;
template <class Soon, class Want, class Work>
TL_INLINE void by_four(int from, int to, const Soon& soon, const Want& want, const Work& work) {
  Four four;
  four.count = 0;
  for (int i = from; i < to; i++) {
    if (i + kSoon < to) soon(i + kSoon);
    if (want(i)) four.at[four.count++] = i;
    if (four.count == 0 || (four.count < 4 && i + 1 < to)) continue;
    for (int l = four.count; l < 4; l++) four.at[l] = four.at[four.count - 1];
    work(four);
    four.count = 0;
  }
}

TL_INLINE void project(int from, int to, const int* ranks, const Inputs& in, float strength,
                       float clip, int width, int height, float* records, int* radii,
                       float* centres) {
  const Lens lens = lens_of(in.camera);
  for (long i = 2l * from; i < 2l * to; i++) {
    radii[i] = 0;
    centres[i] = 0.0f;
  }
  const Surfel* r = (const Surfel*)records;
  by_four(
      from, to, [&](int i) { fetch(r, ranks, i, ranks[i] < 0 ? i : i + 1); },
      [&](int i) { return ranks[i] >= 0; },
      [&](const Four& four) {
        project_four(lens, four, ranks, in, strength, clip, width, height, records, radii,
                     centres);
      });
}

}  // namespace surfels
}  // namespace twinloop
"""
