"""C++ source of the projection of surfels and its adjoint, on top of `surfels`.

Geometry is in double precision: a surfel seen nearly edge on loses digits, and one thread computes
a surfel at a time either way. The record holds N = M^-1 of the rows M = (m0, m1, z) of K [tu tv p],
shifted to the surfel's centre in the image: (u, v, 1) / depth = N (dx, dy, 1). Its adjoint is
dL/dM = -N^T (dL/dN) N^T. Colours are real spherical harmonics to degree 3 plus a half, not below 0.
"""

SOURCE = r"""
namespace twinloop {
namespace surfels {

constexpr double kEdgeOn = 1e-4;  // |cos| of normal and ray below which a surfel has no area
constexpr double kThin = 1e-4;    // px of standard deviation below which it has none
constexpr float kEverywhere = 1e6f;

struct Placed {
  double R[9], t[3], fx, fy, cx, cy;  // the camera
  double q[4], length, W[9], G[9];    // unit quaternion; rotation to the world and to the camera
  double su, sv, p[3], X[3], Y[3], z[3];
  double ix, iy;        // image of the mean
  double x, y;          // centre, rounded to a float
  double m0[3], m1[3];  // rows, shifted to the centre
  double below;         // z0^2 + z1^2 - z2^2; its sign says whether one sigma is an ellipse
  double facing;        // normal . p
  bool solid;
};

TL_INLINE void mean_of(const float* camera, const float* mean, double* p) {
  for (int i = 0; i < 3; i++)
    p[i] = (double)camera[3 * i] * mean[0] + (double)camera[3 * i + 1] * mean[1] +
           (double)camera[3 * i + 2] * mean[2] + camera[9 + i];
}

static Placed place_surfel(const float* camera, const float* mean, const float* quat,
                           const float* scale) {
  Placed s;
  for (int i = 0; i < 9; i++) s.R[i] = camera[i];
  for (int i = 0; i < 3; i++) s.t[i] = camera[9 + i];
  s.fx = camera[12], s.fy = camera[13], s.cx = camera[14], s.cy = camera[15];
  mean_of(camera, mean, s.p);
  double square = 0.0;
  for (int i = 0; i < 4; i++) square += (double)quat[i] * quat[i];
  s.length = __builtin_sqrt(square > 1e-24 ? square : 1e-24);
  for (int i = 0; i < 4; i++) s.q[i] = quat[i] / s.length;
  const double w = s.q[0], x = s.q[1], y = s.q[2], z = s.q[3];
  const double W[9] = {1 - 2 * (y * y + z * z), 2 * (x * y - w * z),     2 * (x * z + w * y),
                       2 * (x * y + w * z),     1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                       2 * (x * z - w * y),     2 * (y * z + w * x),     1 - 2 * (x * x + y * y)};
  for (int i = 0; i < 9; i++) s.W[i] = W[i];
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      s.G[3 * i + j] =
          s.R[3 * i] * W[j] + s.R[3 * i + 1] * W[3 + j] + s.R[3 * i + 2] * W[6 + j];
  s.su = scale[0], s.sv = scale[1];
  const double X[3] = {s.G[0] * s.su, s.G[1] * s.sv, s.p[0]};
  const double Y[3] = {s.G[3] * s.su, s.G[4] * s.sv, s.p[1]};
  const double Z[3] = {s.G[6] * s.su, s.G[7] * s.sv, s.p[2]};
  const double ux = s.p[0] / s.p[2], uy = s.p[1] / s.p[2];
  s.ix = s.fx * ux + s.cx, s.iy = s.fy * uy + s.cy;
  s.below = Z[0] * Z[0] + Z[1] * Z[1] - Z[2] * Z[2];
  double ex = 0.0, ey = 0.0;  // from the mean's image to gsplat's means2d
  for (int k = 0; k < 3; k++) {
    s.X[k] = X[k], s.Y[k] = Y[k], s.z[k] = Z[k];
    s.m0[k] = s.fx * (X[k] - ux * Z[k]);
    s.m1[k] = s.fy * (Y[k] - uy * Z[k]);
    if (k < 2) ex += s.m0[k] * Z[k], ey += s.m1[k] * Z[k];
  }
  if (s.below < 0.0) ex /= s.below, ey /= s.below;
  else ex = ey = 0.0;
  s.x = (float)(s.ix + ex), s.y = (float)(s.iy + ey);
  for (int k = 0; k < 3; k++) {
    s.m0[k] -= (s.x - s.ix) * Z[k];
    s.m1[k] -= (s.y - s.iy) * Z[k];
  }
  s.facing = s.G[2] * s.p[0] + s.G[5] * s.p[1] + s.G[8] * s.p[2];
  const double a = __builtin_fabs(s.su), b = __builtin_fabs(s.sv);
  const double thin = (a < b ? a : b) * (s.fx < s.fy ? s.fx : s.fy);
  const double far = s.p[0] * s.p[0] + s.p[1] * s.p[1] + s.p[2] * s.p[2];
  s.solid = s.facing * s.facing > kEdgeOn * kEdgeOn * far && thin > kThin * s.p[2];
  return s;
}

// Columns of N: of dx, of dy and the constant.
TL_INLINE void invert(const Placed& s, double* B, double* C, double* A) {
  for (int k = 0; k < 3; k++) {
    const int i = (k + 1) % 3, j = (k + 2) % 3;
    B[k] = s.m1[i] * s.z[j] - s.m1[j] * s.z[i];
    C[k] = s.z[i] * s.m0[j] - s.z[j] * s.m0[i];
    A[k] = s.m0[i] * s.m1[j] - s.m0[j] * s.m1[i];
  }
  const double scale = 1.0 / (s.m0[0] * B[0] + s.m0[1] * B[1] + s.m0[2] * B[2]);
  for (int k = 0; k < 3; k++) A[k] *= scale, B[k] *= scale, C[k] *= scale;
}

// Outline, disc and radii (px) of u^2 + v^2 <= level; false if none of it is in the image.
static bool outline_surfel(const Placed& s, float level, float strength, int width, int height,
                           Surfel& out, float& rx, float& ry) {
  // An ellipse with covariance sxx, sxy, syy if all is before the camera, or it may be anywhere.
  double ex = 0.0, ey = 0.0, sxx = 1e12, sxy = 0.0, syy = 1e12;
  const double* z = s.z;
  const double *m = s.m0, *n = s.m1, square = z[2] * z[2];
  const double reach = square - level * (z[0] * z[0] + z[1] * z[1]);
  if (reach > 1e-3 * square) {
    ex = (m[2] * z[2] - level * (m[0] * z[0] + m[1] * z[1])) / reach;
    ey = (n[2] * z[2] - level * (n[0] * z[0] + n[1] * z[1])) / reach;
    sxx = ex * ex + (level * (m[0] * m[0] + m[1] * m[1]) - m[2] * m[2]) / reach;
    sxy = ex * ey + (level * (m[0] * n[0] + m[1] * n[1]) - m[2] * n[2]) / reach;
    syy = ey * ey + (level * (n[0] * n[0] + n[1] * n[1]) - n[2] * n[2]) / reach;
    sxx = (sxx > 0.0 ? sxx : 0.0) + 1e-4;
    syy = (syy > 0.0 ? syy : 0.0) + 1e-4;
  }
  const double half_width = __builtin_sqrt(sxx), half_height = __builtin_sqrt(syy);
  const double half = 0.5 * (sxx - syy);
  const double shorter = 0.5 * (sxx + syy) - __builtin_sqrt(half * half + sxy * sxy);
  double disc = __builtin_sqrt(level / strength);
  // Left out where the ellipse surely holds it: its shorter half axis reaches past it.
  const double past = disc + __builtin_sqrt(ex * ex + ey * ey);
  if (s.solid && shorter > past * past) disc = 0.0;
  const double left = half_width - ex > disc ? half_width - ex : disc;
  const double right = half_width + ex > disc ? half_width + ex : disc;
  const double top = half_height - ey > disc ? half_height - ey : disc;
  const double bottom = half_height + ey > disc ? half_height + ey : disc;
  rx = (float)(left > right ? left : right);
  ry = (float)(top > bottom ? top : bottom);
  const double rest = sxx - sxy * sxy / syy;
  out.disc = (float)disc;
  out.outline = Outline{(float)(s.x + ex),      (float)(s.y + ey), (float)half_height,
                        (float)(sxy / syy),     (float)rest,       (float)(rest / syy),
                        (float)(sxy / half_width)};
  if (!s.solid) out.outline.half_height = -1.0f;
  return s.x + right > 0.0 && s.x - left < width && s.y + bottom > 0.0 && s.y - top < height;
}

// Basis functions in direction d and, if wanted, their derivatives by d.
TL_INLINE void harmonics(int count, const float* d, float* b, float (*g)[3]) {
  const float x = d[0], y = d[1], z = d[2];
  for (int i = 0; i < count && g; i++) g[i][0] = g[i][1] = g[i][2] = 0.0f;
  b[0] = 0.2820947917738781f;
  if (count < 4) return;
  const float k = 0.48860251190292f;
  b[1] = -k * y, b[2] = k * z, b[3] = -k * x;
  if (g) g[1][1] = -k, g[2][2] = k, g[3][0] = -k;
  if (count < 9) return;
  const float l = 1.092548430592079f, m = 0.9461746957575601f, n = 0.5462742152960395f;
  b[4] = l * x * y, b[5] = -l * y * z, b[6] = m * z * z - 0.3153915652525201f;
  b[7] = -l * x * z, b[8] = n * (x * x - y * y);
  if (g) {
    g[4][0] = l * y, g[4][1] = l * x, g[5][1] = -l * z, g[5][2] = -l * y;
    g[6][2] = 2.0f * m * z, g[7][0] = -l * z, g[7][2] = -l * x;
    g[8][0] = 2.0f * n * x, g[8][1] = -2.0f * n * y;
  }
  if (count < 16) return;
  const float o = 0.5900435899266435f, p = 2.890611442640554f, q = 0.4570457994644657f;
  const float r = 0.3731763325901154f, s = 1.445305721320277f, w = x * x - y * y;
  b[9] = -o * y * (3.0f * x * x - y * y), b[10] = p * x * y * z;
  b[11] = -q * y * (5.0f * z * z - 1.0f), b[12] = r * z * (5.0f * z * z - 3.0f);
  b[13] = -q * x * (5.0f * z * z - 1.0f), b[14] = s * z * w;
  b[15] = -o * x * (x * x - 3.0f * y * y);
  if (!g) return;
  g[9][0] = -6.0f * o * x * y, g[9][1] = -3.0f * o * w;
  g[10][0] = p * y * z, g[10][1] = p * x * z, g[10][2] = p * x * y;
  g[11][1] = g[13][0] = -q * (5.0f * z * z - 1.0f);
  g[11][2] = -10.0f * q * y * z, g[13][2] = -10.0f * q * x * z;
  g[12][2] = r * (15.0f * z * z - 3.0f);
  g[14][0] = 2.0f * s * x * z, g[14][1] = -2.0f * s * y * z, g[14][2] = s * w;
  g[15][0] = -3.0f * o * w, g[15][1] = 6.0f * o * x * y;
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

// Records of surfels [from, to), each at its rank; radii (n, 2) and centres (n, 2) px.
TL_INLINE void project(int from, int to, const int* ranks, const Inputs& in, float strength,
                       float clip, int width, int height, float* records, int* radii,
                       float* centres) {
  for (int i = from; i < to; i++) {
    const int n = ranks[i];
    radii[2l * i] = radii[2l * i + 1] = 0;
    centres[2l * i] = centres[2l * i + 1] = 0.0f;
    if (n < 0) continue;
    Surfel& r = ((Surfel*)records)[n];
    const Placed s =
        place_surfel(in.camera, in.means + 3l * i, in.quats + 4l * i,
                     in.scales + (long)in.scale_stride * i);
    const float level = 2.0f * __builtin_logf(255.0f * in.opacities[i]) + 1e-5f;
    float rx, ry;
    const bool shown = outline_surfel(s, level, strength, width, height, r, rx, ry);
    centres[2l * i] = r.x = (float)s.x;
    centres[2l * i + 1] = r.y = (float)s.y;
    if (!shown || (rx <= clip && ry <= clip)) {
      r.outline.half_height = -1.0f;
      r.disc = 0.0f;
      continue;
    }
    radii[2l * i] = (int)__builtin_ceilf(rx < kEverywhere ? rx : kEverywhere);
    radii[2l * i + 1] = (int)__builtin_ceilf(ry < kEverywhere ? ry : kEverywhere);
    r.opacity = in.opacities[i];
    r.filter = strength;
    r.z = (float)s.p[2];
    if (s.solid) {
      double A[3], B[3], C[3];
      invert(s, B, C, A);
      for (int k = 0; k < 3; k++) r.A[k] = (float)A[k], r.B[k] = (float)B[k], r.C[k] = (float)C[k];
    } else {  // edge on or without area: (u, v) out of reach, so that only the disc shows
      for (int k = 0; k < 3; k++) r.A[k] = r.B[k] = r.C[k] = 0.0f;
      r.A[0] = 1e9f;
      r.A[2] = 1.0f / r.z;
    }
    if (in.bases > 0) {
      float d[3], b[16];
      direction_to(in.camera, in.means + 3l * i, d);
      harmonics(in.bases, d, b, nullptr);
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
    const double side = s.facing < 0.0 ? 1.0 : -1.0;
    for (int c = 0; c < 3; c++) r.feature[3 + c] = (float)(side * s.W[3 * c + 2]);
  }
}

struct Outputs {
  float *camera, *means, *quats, *scales, *opacities, *colors;
};

// Gradients of surfels [from, to); of those that count nowhere they stay zero.
TL_INLINE void project_adjoint(int from, int to, const int* ranks, const Inputs& in,
                               const float* records, const float* gradient,
                               const Outputs& out) {
  double v_camera[16] = {};
  for (int i = from; i < to; i++) {
    const int n = ranks[i];
    if (n < 0) continue;
    const Surfel& r = ((const Surfel*)records)[n];
    const Surfel& g = ((const Surfel*)gradient)[n];
    if (g.disc == 0.0f) continue;
    const float* mean = in.means + 3l * i;
    const Placed s = place_surfel(in.camera, mean, in.quats + 4l * i,
                                  in.scales + (long)in.scale_stride * i);
    double v0[3] = {}, v1[3] = {}, vz[3] = {};  // of the rows m0, m1, z
    if (s.solid) {
      double N[3][3], P[3][3];  // N's columns: dx, dy, constant
      double A[3], B[3], C[3];
      invert(s, B, C, A);
      for (int k = 0; k < 3; k++) N[k][0] = B[k], N[k][1] = C[k], N[k][2] = A[k];
      for (int k = 0; k < 3; k++)
        for (int j = 0; j < 3; j++)
          P[k][j] = g.B[k] * N[j][0] + g.C[k] * N[j][1] + g.A[k] * N[j][2];
      for (int j = 0; j < 3; j++) {
        v0[j] = -(N[0][0] * P[0][j] + N[1][0] * P[1][j] + N[2][0] * P[2][j]);
        v1[j] = -(N[0][1] * P[0][j] + N[1][1] * P[1][j] + N[2][1] * P[2][j]);
        vz[j] = -(N[0][2] * P[0][j] + N[1][2] * P[1][j] + N[2][2] * P[2][j]);
      }
    }
    // The disc's centre is x + m0.f, y + m1.f with f = (z0, z1, -z2) / below, both dots zero here.
    if (s.below < 0.0) {
      for (int k = 0; k < 3; k++) {
        const double sign = k < 2 ? 1.0 : -1.0, f = sign * s.z[k] / s.below;
        v0[k] += g.x * f;
        v1[k] += g.y * f;
        vz[k] += sign * (g.x * s.m0[k] + g.y * s.m1[k]) / s.below;
      }
    } else {
      v0[2] += g.x / s.z[2];
      v1[2] += g.y / s.z[2];
    }
    vz[2] += g.z;
    double column[3][3];  // gradient of tu, tv, p in the camera's axes
    for (int k = 0; k < 3; k++) {
      column[k][0] = s.fx * v0[k];
      column[k][1] = s.fy * v1[k];
      column[k][2] = vz[k] + (s.cx - s.x) * v0[k] + (s.cy - s.y) * v1[k];
      v_camera[12] += v0[k] * s.X[k];
      v_camera[13] += v1[k] * s.Y[k];
      v_camera[14] += v0[k] * s.z[k];
      v_camera[15] += v1[k] * s.z[k];
    }
    double vu = 0.0, vv = 0.0, vW[9], v_mean[3];
    const double side = s.facing < 0.0 ? 1.0 : -1.0;
    for (int c = 0; c < 3; c++) {
      vu += column[0][c] * s.G[3 * c];
      vv += column[1][c] * s.G[3 * c + 1];
      vW[3 * c] = vW[3 * c + 1] = v_mean[c] = 0.0;
      for (int a = 0; a < 3; a++) {
        vW[3 * c] += s.R[3 * a + c] * column[0][a] * s.su;
        vW[3 * c + 1] += s.R[3 * a + c] * column[1][a] * s.sv;
        v_mean[c] += s.R[3 * a + c] * column[2][a];
        v_camera[3 * a + c] += column[0][a] * s.su * s.W[3 * c] +
                               column[1][a] * s.sv * s.W[3 * c + 1] + column[2][a] * mean[c];
      }
      v_camera[9 + c] += column[2][c];
      vW[3 * c + 2] = side * g.feature[3 + c];
    }
    const double w = s.q[0], x = s.q[1], y = s.q[2], z = s.q[3];
    const double vq[4] = {
        2 * (-z * vW[1] + y * vW[2] + z * vW[3] - x * vW[5] - y * vW[6] + x * vW[7]),
        2 * (y * vW[1] + z * vW[2] + y * vW[3] - 2 * x * vW[4] - w * vW[5] + z * vW[6] +
             w * vW[7] - 2 * x * vW[8]),
        2 * (-2 * y * vW[0] + x * vW[1] + w * vW[2] + x * vW[3] + z * vW[5] - w * vW[6] +
             z * vW[7] - 2 * y * vW[8]),
        2 * (-2 * z * vW[0] - w * vW[1] + x * vW[2] + w * vW[3] - 2 * z * vW[4] + y * vW[5] +
             x * vW[6] + y * vW[7])};
    const double along = w * vq[0] + x * vq[1] + y * vq[2] + z * vq[3];
    for (int k = 0; k < 4; k++)
      out.quats[4l * i + k] = (float)((vq[k] - s.q[k] * along) / s.length);
    out.scales[(long)in.scale_stride * i] = (float)vu;
    out.scales[(long)in.scale_stride * i + 1] = (float)vv;
    out.opacities[i] = g.opacity;
    if (in.bases > 0) {
      float d[3], b[16], db[16][3], vd[3] = {}, vc[3];
      const float distance = direction_to(in.camera, mean, d);
      harmonics(in.bases, d, b, db);
      const long at = 3l * in.coefficients * i;
      for (int c = 0; c < 3; c++) vc[c] = r.feature[c] > 0.0f ? g.feature[c] : 0.0f;
      for (int k = 0; k < in.bases; k++) {
        float dot = 0.0f;
        for (int c = 0; c < 3; c++) {
          out.colors[at + 3 * k + c] = b[k] * vc[c];
          dot += in.colors[at + 3 * k + c] * vc[c];
        }
        for (int c = 0; c < 3; c++) vd[c] += db[k][c] * dot;
      }
      const float radial = vd[0] * d[0] + vd[1] * d[1] + vd[2] * d[2];
      for (int c = 0; c < 3; c++) {  // the eye is -R^T t
        const double v = (vd[c] - d[c] * radial) / distance;
        v_mean[c] += v;
        for (int a = 0; a < 3; a++) {
          v_camera[3 * a + c] += s.t[a] * v;
          v_camera[9 + a] += s.R[3 * a + c] * v;
        }
      }
    } else {
      for (int c = 0; c < in.channels; c++)
        out.colors[(long)in.color_stride * i + c] = g.feature[c];
    }
    for (int c = 0; c < 3; c++) out.means[3l * i + c] = (float)v_mean[c];
  }
  for (int k = 0; k < 16; k++) out.camera[k] = (float)v_camera[k];
}

}  // namespace surfels
}  // namespace twinloop
"""
