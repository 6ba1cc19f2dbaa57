"""C++ source of the adjoint of the projection of surfels, on top of `surfel_projection`.

Four surfels at a time. The adjoint of N = M^-1 is dL/dM = -N^T (dL/dN) N^T.
"""

SOURCE = r"""
namespace twinloop {
namespace surfels {

struct Outputs {
  float *camera, *means, *quats, *scales, *opacities, *colors;
};

// Gradient of a surfel's colour by its features' and, into `pull` (3), by the direction's mean.
TL_INLINE void shade_adjoint(int i, const Inputs& in, const Surfel& r, const Surfel& g,
                             const Outputs& out, double* pull) {
  pull[0] = pull[1] = pull[2] = 0.0;
  if (in.bases == 0) {
    for (int c = 0; c < in.channels; c++)
      out.colors[(long)in.color_stride * i + c] = g.feature[c];
    return;
  }
  float d[3], b[16], db[16][3], vd[3] = {}, vc[3];
  const float distance = direction_to(in.camera, in.means + 3l * i, d);
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
  for (int c = 0; c < 3; c++) pull[c] = (vd[c] - d[c] * radial) / distance;
}

TL_INLINE void adjoint_of_four(const Lens& lens, const Four& four, const int* ranks,
                               const Inputs& in, const float* records, const float* gradient,
                               const Outputs& out, D* v_camera) {
  Placed s;
  place_surfels(lens, four, in.means, in.quats, in.scales, in.scale_stride, s);
  const Surfel* g[4];
  for (int l = 0; l < 4; l++) g[l] = (const Surfel*)gradient + ranks[four.at[l]];
  L real;
  for (int l = 0; l < 4; l++) real[l] = l < four.count ? -1 : 0;
#define TL_GIVEN(member) (real ? D{g[0]->member, g[1]->member, g[2]->member, g[3]->member} : D{})
  D A[3], B[3], C[3], N[3][3], P[3][3];  // N's columns: dx, dy, constant
  invert(s, B, C, A);
  for (int k = 0; k < 3; k++) N[k][0] = B[k], N[k][1] = C[k], N[k][2] = A[k];
  for (int k = 0; k < 3; k++) {
    const D gA = TL_GIVEN(A[k]), gB = TL_GIVEN(B[k]), gC = TL_GIVEN(C[k]);
    for (int j = 0; j < 3; j++) P[k][j] = gB * N[j][0] + gC * N[j][1] + gA * N[j][2];
  }
  D v0[3], v1[3], vz[3];  // of the rows m0, m1, z
  for (int j = 0; j < 3; j++) {
    v0[j] = -(N[0][0] * P[0][j] + N[1][0] * P[1][j] + N[2][0] * P[2][j]);
    v1[j] = -(N[0][1] * P[0][j] + N[1][1] * P[1][j] + N[2][1] * P[2][j]);
    vz[j] = -(N[0][2] * P[0][j] + N[1][2] * P[1][j] + N[2][2] * P[2][j]);
  }
  // The disc's centre is x + m0.f, y + m1.f with f = (z0, z1, -z2) / below, both dots zero here,
  // or f = (0, 0, 1 / z2).
  const D gx = TL_GIVEN(x), gy = TL_GIVEN(y);
  const L ellipse = s.below < 0.0;
  const D share = ellipse ? 1.0 / s.below : D{};
  for (int k = 0; k < 3; k++) {
    const D with = k < 2 ? share : -share;
    const D f = k < 2 ? s.z[k] * with : (ellipse ? s.z[k] * with : 1.0 / s.z[2]);
    v0[k] += gx * f;
    v1[k] += gy * f;
    vz[k] += with * (gx * s.m0[k] + gy * s.m1[k]);
  }
  vz[2] += TL_GIVEN(z);
  D column[3][3];  // gradient of tu, tv, p in the camera's axes
  for (int k = 0; k < 3; k++) {
    column[k][0] = lens.fx * v0[k];
    column[k][1] = lens.fy * v1[k];
    column[k][2] = vz[k] + (lens.cx - s.x) * v0[k] + (lens.cy - s.y) * v1[k];
    v_camera[12] += v0[k] * s.X[k];
    v_camera[13] += v1[k] * s.Y[k];
    v_camera[14] += v0[k] * s.z[k];
    v_camera[15] += v1[k] * s.z[k];
  }
  double pull[4][3] = {};
  for (int l = 0; l < four.count; l++)
    shade_adjoint(four.at[l], in, ((const Surfel*)records)[ranks[four.at[l]]], *g[l], out, pull[l]);
  D vu = {}, vv = {}, vW[9], v_mean[3];
  for (int c = 0; c < 3; c++) {
    const D mean = four.take(in.means, 3, c), v = {pull[0][c], pull[1][c], pull[2][c], pull[3][c]};
    vu += column[0][c] * s.G[3 * c];
    vv += column[1][c] * s.G[3 * c + 1];
    vW[3 * c] = vW[3 * c + 1] = D{};
    v_mean[c] = v;
    for (int a = 0; a < 3; a++) {
      vW[3 * c] += lens.R[3 * a + c] * column[0][a] * s.su;
      vW[3 * c + 1] += lens.R[3 * a + c] * column[1][a] * s.sv;
      v_mean[c] += lens.R[3 * a + c] * column[2][a];
      v_camera[3 * a + c] += column[0][a] * s.su * s.W[3 * c] +
                             column[1][a] * s.sv * s.W[3 * c + 1] + column[2][a] * mean +
                             lens.t[a] * v;  // the eye is -R^T t
      v_camera[9 + a] += lens.R[3 * a + c] * v;
    }
    v_camera[9 + c] += column[2][c];
    const D normal = TL_GIVEN(feature[3 + c]);
    vW[3 * c + 2] = s.facing < 0.0 ? normal : -normal;
    four.put(v_mean[c], out.means, 3, c);
  }
#undef TL_GIVEN
  const D w = s.q[0], x = s.q[1], y = s.q[2], z = s.q[3];
  const D vq[4] = {
      2 * (-z * vW[1] + y * vW[2] + z * vW[3] - x * vW[5] - y * vW[6] + x * vW[7]),
      2 * (y * vW[1] + z * vW[2] + y * vW[3] - 2 * x * vW[4] - w * vW[5] + z * vW[6] + w * vW[7] -
           2 * x * vW[8]),
      2 * (-2 * y * vW[0] + x * vW[1] + w * vW[2] + x * vW[3] + z * vW[5] - w * vW[6] +
           z * vW[7] - 2 * y * vW[8]),
      2 * (-2 * z * vW[0] - w * vW[1] + x * vW[2] + w * vW[3] - 2 * z * vW[4] + y * vW[5] +
           x * vW[6] + y * vW[7])};
  const D along = w * vq[0] + x * vq[1] + y * vq[2] + z * vq[3], shorter = 1.0 / s.length;
  for (int k = 0; k < 4; k++) four.put((vq[k] - s.q[k] * along) * shorter, out.quats, 4, k);
  four.put(vu, out.scales, in.scale_stride, 0);
  four.put(vv, out.scales, in.scale_stride, 1);
  for (int l = 0; l < four.count; l++) out.opacities[four.at[l]] = g[l]->opacity;
}

// Gradients of surfels [from, to); of those that count nowhere they stay zero.
TL_INLINE void project_adjoint(int from, int to, const int* ranks, const Inputs& in,
                               const float* records, const float* gradient,
                               const Outputs& out) {
  const Lens lens = lens_of(in.camera);
  D v_camera[16] = {};
  const Surfel *r = (const Surfel*)records, *v = (const Surfel*)gradient;
  by_four(
      from, to,
      [&](int i) {
        const int end = ranks[i] < 0 ? i : i + 1;
        fetch(r, ranks, i, end);
        fetch(v, ranks, i, end);
      },
      [&](int i) { return ranks[i] >= 0 && v[ranks[i]].disc > 0.0f; },
      [&](const Four& four) {
        adjoint_of_four(lens, four, ranks, in, records, gradient, out, v_camera);
      });
  for (int k = 0; k < 16; k++)
    out.camera[k] = (float)((v_camera[k][0] + v_camera[k][1]) + (v_camera[k][2] + v_camera[k][3]));
}

}  // namespace surfels
}  // namespace twinloop
"""
"""C++ text."""
