"""C++ source of the normals of a depth image and their adjoint, on top of `simd`.

A pixel's normal is the cross product of the central differences of the points of its neighbours,
down and right, made unit and turned to the world; zero at the image's border. Depth images have a
column of padding on the left and `PADDING` in all, so that vectors of pixels never leave a row.
"""

PADDING = 17
"""Columns added to a depth image: one on the left, the others on the right."""

SOURCE = r"""
namespace twinloop {
namespace surfels {

constexpr int kPadding = 17;

struct DepthView {
  int width, height;
  const float* camera;  // rotation to the camera, then at 12 fx, fy, cx, cy
  const float* depth;   // (h, w + kPadding)
};

TL_INLINE F load_row(const float* from) {
  F v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
TL_INLINE void add_row(float* to, F v) {
  v += load_row(to);
  __builtin_memcpy(to, &v, sizeof v);
}
// Pixels of an image (h, w, 3) from channel by channel and back, `count` of a vector.
TL_INLINE void put_three(float* to, const F* v, int count) {
  float pixels[3 * kLanes];
  for (int r = 0; r < kLanes / 4; r++) {
    F4 c[3], p[3];
    for (int k = 0; k < 3; k++) __builtin_memcpy(c + k, (const float*)(v + k) + 4 * r, 16);
    weave(c, p);
    __builtin_memcpy(pixels + 12 * r, p, sizeof p);
  }
  if (count >= kLanes) __builtin_memcpy(to, pixels, sizeof pixels);
  else __builtin_memcpy(to, pixels, 12ul * count);
}
TL_INLINE void take_three(const float* from, F* v, int count) {
  float pixels[3 * kLanes] = {};
  if (count >= kLanes) __builtin_memcpy(pixels, from, sizeof pixels);
  else __builtin_memcpy(pixels, from, 12ul * count);
  for (int r = 0; r < kLanes / 4; r++) {
    F4 c[3], p[3];
    __builtin_memcpy(p, pixels + 12 * r, sizeof p);
    split(p, c);
    for (int k = 0; k < 3; k++) __builtin_memcpy((float*)(v + k) + 4 * r, c + k, 16);
  }
}

struct Slope {  // of the surface at a vector of pixels, and where its rays go
  F down[3], right[3], n[3], scale;  // n is unit where it can be
  F x, left_x, right_x;
  float y, top_y, bottom_y;
  I inside;
};
TL_INLINE Slope slope_at(const DepthView& d, int x, int y) {
  const float *c = d.camera + 12, *row = d.depth + (long)y * (d.width + kPadding) + x + 1;
  const int stride = d.width + kPadding;
  F column;
  for (int l = 0; l < kLanes; l++) column[l] = (float)(x + l);
  Slope s;
  const float step = 1.0f / c[0];
  s.x = (column + (0.5f - c[2])) / c[0];
  s.left_x = s.x - step;
  s.right_x = s.x + step;
  s.y = ((float)y + 0.5f - c[3]) / c[1];
  s.top_y = ((float)y - 0.5f - c[3]) / c[1];
  s.bottom_y = ((float)y + 1.5f - c[3]) / c[1];
  const F top = load_row(row - stride), bottom = load_row(row + stride);
  const F left = load_row(row - 1), right = load_row(row + 1);
  s.down[2] = bottom - top;
  s.down[0] = s.down[2] * s.x;
  s.down[1] = bottom * s.bottom_y - top * s.top_y;
  s.right[2] = right - left;
  s.right[0] = right * s.right_x - left * s.left_x;
  s.right[1] = s.right[2] * s.y;
  F square = {};
  for (int k = 0; k < 3; k++) {
    const int i = (k + 1) % 3, j = (k + 2) % 3;
    s.n[k] = s.down[i] * s.right[j] - s.down[j] * s.right[i];
    square += s.n[k] * s.n[k];
  }
  s.inside = (column > 0.5f) & (column < (float)d.width - 1.5f);
  // Where the differences are parallel, as where nothing is seen, there is none, nor a gradient.
  const I some = s.inside & (square > 1e-24f);
  s.scale = some ? 1.0f / __builtin_elementwise_sqrt(greatest(square, all(1e-24f))) : F{};
  for (int k = 0; k < 3; k++) s.n[k] *= s.scale;
  return s;
}

// Normals (h, w, 3) of rows [from, to).
TL_INLINE void normals(const DepthView& d, int from, int to, float* out) {
  const float* R = d.camera;
  for (int y = from; y < to; y++)
    for (int x = 0; x < d.width; x += kLanes) {
      F world[3] = {};
      if (y > 0 && y < d.height - 1) {
        const Slope s = slope_at(d, x, y);
        for (int k = 0; k < 3; k++)
          world[k] = s.n[0] * R[k] + s.n[1] * R[3 + k] + s.n[2] * R[6 + k];
      }
      put_three(out + 3 * ((long)y * d.width + x), world, d.width - x);
    }
}

// Adds to `v_depth`, padded like the depth; `v_rotation` (9) gets its own.
TL_INLINE void normals_adjoint(const DepthView& d, const float* gradient, float* v_depth,
                               float* v_rotation) {
  const float* R = d.camera;
  const int stride = d.width + kPadding;
  double total[9] = {};
  for (int y = 1; y < d.height - 1; y++) {
    F rotation[9] = {};
    for (int x = 0; x < d.width; x += kLanes) {
      const Slope s = slope_at(d, x, y);
      F g[3], v[3], along = {};
      take_three(gradient + 3 * ((long)y * d.width + x), g, d.width - x);
      for (int a = 0; a < 3; a++) {
        for (int c = 0; c < 3; c++) rotation[3 * a + c] += s.n[a] * g[c];
        v[a] = R[3 * a] * g[0] + R[3 * a + 1] * g[1] + R[3 * a + 2] * g[2];
        along += s.n[a] * v[a];
      }
      for (int a = 0; a < 3; a++) v[a] = (v[a] - s.n[a] * along) * s.scale;
      F down[3], right[3];
      for (int k = 0; k < 3; k++) {
        const int i = (k + 1) % 3, j = (k + 2) % 3;
        down[k] = s.right[i] * v[j] - s.right[j] * v[i];
        right[k] = v[i] * s.down[j] - v[j] * s.down[i];
      }
      float* at = v_depth + (long)y * stride + x + 1;
      const F fall = down[0] * s.x + down[2], rise = right[1] * s.y + right[2];
      add_row(at + stride, fall + down[1] * s.bottom_y);
      add_row(at - stride, -(fall + down[1] * s.top_y));
      add_row(at + 1, rise + right[0] * s.right_x);
      add_row(at - 1, -(rise + right[0] * s.left_x));
    }
    for (int k = 0; k < 9; k++) total[k] += sum(rotation[k]);
  }
  for (int k = 0; k < 9; k++) v_rotation[k] = (float)total[k];
}

}  // namespace surfels
}  // namespace twinloop
"""
"""C++ text."""
