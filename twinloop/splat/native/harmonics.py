"""C++ text of real spherical harmonics to degree 3, on top of `simd`."""

SOURCE = r"""
namespace twinloop {

// Basis functions in direction d and, if wanted, their derivatives by d.
template <class V>
TL_INLINE void harmonics(int count, const V* d, V* b, V (*g)[3]) {
  const V x = d[0], y = d[1], z = d[2], zero = {};
  for (int i = 0; i < count && g; i++) g[i][0] = g[i][1] = g[i][2] = zero;
  b[0] = zero + 0.2820947917738781f;
  if (count < 4) return;
  const float k = 0.48860251190292f;
  b[1] = -k * y, b[2] = k * z, b[3] = -k * x;
  if (g) g[1][1] = zero - k, g[2][2] = zero + k, g[3][0] = zero - k;
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
  const float r = 0.3731763325901154f, s = 1.445305721320277f;
  const V w = x * x - y * y;
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

}  // namespace twinloop
"""
