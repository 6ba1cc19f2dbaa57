"""C++ source of the steps that the CPU rasteriser of surfels runs, on top of its other sources.

A step gets its arguments packed: whole numbers, floats and addresses, in the order that
`twinloop.splat.cpu_2dgs` documents where it runs the step. Null addresses are not wanted.
"""

FIND, ORDER, PROJECT, BIN, FORWARD, BACKWARD, GATHER, ADJOINT, NORMALS, NORMALS_ADJOINT = range(10)
"""The steps of `run`."""

SOURCE = r"""
namespace twinloop {
namespace surfels {

// Gradient of records [from, to) out of those of their entries, added in order: laid out like the
// record, whose outline has none. `screen` (n, 2): of a shift of the whole surfel in the image.
TL_INLINE void gather(int from, int to, const int* begin, const int* place, const int* order,
                      const Surfel* surfels, const unsigned* used, const float* gradient,
                      int stride, bool first, float* records, float* features, float* screen) {
  for (int n = from; n < to; n++) {
    F8 a = {}, b = {};
    F4 c = {};
    bool counts = false;
    for (int e = begin[n]; e < begin[n + 1]; e++) {
      if (e + 12 < begin[to]) {  // a row is in two lines of the cache, or nearly so
        __builtin_prefetch(used + place[e + 12]);
        __builtin_prefetch(gradient + (long)place[e + 12] * kGradient);
        __builtin_prefetch(gradient + (long)place[e + 12] * kGradient + 16);
      }
      if (!used[place[e]]) continue;
      counts = true;
      const float* from_entry = gradient + (long)place[e] * kGradient;
      F8 v;
      F4 w;
      __builtin_memcpy(&v, from_entry, sizeof v);
      a += v;
      __builtin_memcpy(&v, from_entry + 8, sizeof v);
      b += v;
      __builtin_memcpy(&w, from_entry + 16, sizeof w);
      c += w;
    }
    Surfel& r = ((Surfel*)records)[n];
    if (first) r = Surfel{};
    r.disc = counts ? 1.0f : 0.0f;  // for the projection's adjoint
    r.x += a[0];
    r.y += a[1];
    r.opacity += a[2];
    const float A[3] = {a[3], a[4], a[5]}, B[3] = {a[6], a[7], b[0]}, C[3] = {b[1], b[2], b[3]};
    const Surfel& s = surfels[n];
    float x = a[0], y = a[1];
    for (int k = 0; k < 3; k++) {
      r.A[k] += A[k];
      r.B[k] += B[k];
      r.C[k] += C[k];
      x -= A[k] * s.B[k];
      y -= A[k] * s.C[k];
    }
    r.z += b[4];
    float* f = features + (long)n * stride;
    for (int k = 0; k < 3; k++) {
      f[k] = b[5 + k];
      f[3 + k] = c[k];
    }
    if (!counts) continue;  // a record of what shows nowhere was never written
    screen[2l * order[n]] += x;
    screen[2l * order[n] + 1] += y;
  }
}

// Which template: as few features and as little depth as this pass was asked for.
TL_INLINE void forward(int depth, int tile, const Pixels& out, const int* start, const int* list,
                       const float* records, const float* features, int stride, float near,
                       int crossed, const float* background, float* transmittance,
                       unsigned* used) {
  const Surfel* s = (const Surfel*)records;
#define TL_CASE(count, level)                                                                  \
  forward_tile<count, level>(tile, out, start, list, s, features, stride, near, crossed,    \
                             background, transmittance, used)
  const bool wide = out.normal || out.taken > 3;
  if (depth > 1) TL_CASE(6, 2);
  else if (depth > 0 && wide) TL_CASE(6, 1);
  else if (depth > 0) TL_CASE(3, 1);
  else if (wide) TL_CASE(6, 0);
  else TL_CASE(3, 0);
#undef TL_CASE
}
TL_INLINE void backward(int depth, int tile, const Pixels& image, const Pixels& back,
                        const int* start, const int* list, const float* records,
                        const float* features, int stride, float near, int crossed,
                        const float* background, const float* transmittance,
                        const unsigned* used, float* gradient) {
  const Surfel* s = (const Surfel*)records;
#define TL_CASE(count, level)                                                                   \
  backward_tile<count, level>(tile, image, back, start, list, s, features, stride, near, \
                              crossed, background, transmittance, used, gradient)
  const bool wide = back.normal || (back.colour && image.taken > 3);
  if (depth > 1) TL_CASE(6, 2);
  else if (depth > 0 && wide) TL_CASE(6, 1);
  else if (depth > 0) TL_CASE(3, 1);
  else if (wide) TL_CASE(6, 0);
  else TL_CASE(3, 0);
#undef TL_CASE
}

struct Arguments {
  const int* whole;
  const float* real;
  const long long* address;
  float* floats(int k) const { return (float*)address[k]; }
  int* ints(int k) const { return (int*)address[k]; }
};

// Where the tensors of one picture are: from `at` on, colour, normal, alpha, distortion, median.
TL_INLINE Pixels pixels(const Arguments& a, int at) {
  const int* w = a.whole;  // tiles, depth, width, height, channels, first, taken, channel, expected
  return Pixels{w[2],           w[3], a.floats(at),     w[4], w[5], w[6], a.floats(at + 1), w[7],
                w[8],           a.floats(at + 2), a.floats(at + 3), a.floats(at + 4)};
}
TL_INLINE Inputs inputs(const Arguments& a) {  // camera, means, quats, scales, opacities, colors
  const int* w = a.whole;  // count, scale_stride, bases, coefficients, channels, color_stride
  return Inputs{a.floats(0), a.floats(1), a.floats(2), a.floats(3), a.floats(4),
                a.floats(5), w[1],        w[2],        w[3],        w[4],        w[5]};
}

static void run(int step, int slice, int slices, const Arguments& a) {
  const int* w = a.whole;
  const float* r = a.real;
  const int part = (w[0] + slices - 1) / slices, from = slice * part;
  const int to = from + part < w[0] ? from + part : w[0];
  if (step == 0) {
    find(w[0], a.floats(0), r[0], r[1], a.floats(1), a.floats(2), a.floats(3));
  } else if (step == 1) {
    a.ints(4)[0] = depth_order(w[0], a.floats(0), a.ints(1), a.ints(2));
    rank(w[0], a.ints(4)[0], a.ints(2), a.ints(3));
  } else if (step == 2) {
    project(from, to, a.ints(6), inputs(a), r[0], r[1], w[6], w[7], a.floats(7), a.ints(8),
            a.floats(9));
  } else if (step == 3) {
    a.ints(5)[0] = bin(w[0], (const Surfel*)a.floats(0), w[1], w[2], w[3], a.ints(1), a.ints(2),
                       a.ints(3), a.ints(4));
  } else if (step == 4) {
    const Pixels out = pixels(a, 6);
    for (int tile = slice; tile < w[0]; tile += slices)
      forward(w[1], tile, out, a.ints(0), a.ints(1), a.floats(2), a.floats(3) + w[9], w[10], r[0],
              w[11], a.floats(4), a.floats(5), (unsigned*)a.ints(11));
  } else if (step == 5) {
    const Pixels image = pixels(a, 6), back = pixels(a, 11);
    for (int tile = slice; tile < w[0]; tile += slices)
      backward(w[1], tile, image, back, a.ints(0), a.ints(1), a.floats(2), a.floats(3) + w[9],
               w[10], r[0], w[11], a.floats(4), a.floats(5),
               (const unsigned*)a.ints(17), a.floats(16));
  } else if (step == 6) {
    gather(from, to, a.ints(0), a.ints(1), a.ints(2), (const Surfel*)a.floats(3),
           (const unsigned*)a.ints(8), a.floats(4), w[2], w[3] != 0, a.floats(5),
           a.floats(6) + w[1], a.floats(7));
  } else if (step == 7) {
    const Outputs out{a.floats(9) + 16 * slice, a.floats(10), a.floats(11), a.floats(12),
                      a.floats(13), a.floats(14)};
    project_adjoint(from, to, a.ints(6), inputs(a), a.floats(7), a.floats(8), out);
  } else if (step == 8) {
    const DepthView d{w[1], w[0], a.floats(0), a.floats(1)};
    normals(d, from, to, a.floats(2));
  } else if (step == 9) {
    const DepthView d{w[1], w[0], a.floats(0), a.floats(1)};
    normals_adjoint(d, a.floats(2), a.floats(3), a.floats(4));
  }
}

}  // namespace surfels
}  // namespace twinloop
"""
