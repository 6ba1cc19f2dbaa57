"""C++ source of the fused Adam step, compiled by the clang inside Warp.

One pass over value, gradient and both moments, sixteen floats at a time:

    m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,
    value -= step factor m / (sqrt(v) root + eps)

where step and root carry the bias corrections (Kingma and Ba 2015, algorithm 1). `factor` repeats
along the values with a period of whole vectors, so that the coefficients of one tensor can have
different steps. Elements do not depend on one another: any cut over threads gives the same bits.
"""

SOURCE = r"""
namespace twinloop_adam {

typedef float V __attribute__((vector_size(64)));
typedef float VU __attribute__((vector_size(64), aligned(4)));

// Elements [first, last), `first` a multiple of 16 * period; factor has 16 * period floats.
static void range(long first, long last, float* value, const float* gradient, float* m, float* v,
                  const float* factor, int period, float b1, float b2, float step, float root,
                  float eps) {
  const float c1 = 1.0f - b1, c2 = 1.0f - b2;
  int phase = 0;
  long i = first;
  for (; i + 16 <= last; i += 16) {
    const V g = *(const VU*)(gradient + i);
    const V mi = b1 * *(const VU*)(m + i) + c1 * g;
    const V vi = b2 * *(const VU*)(v + i) + c2 * g * g;
    *(VU*)(m + i) = mi;
    *(VU*)(v + i) = vi;
    const V s = step * *(const VU*)(factor + 16 * phase);
    *(VU*)(value + i) =
        *(const VU*)(value + i) - s * mi / (__builtin_elementwise_sqrt(vi) * root + eps);
    if (++phase == period) phase = 0;
  }
  for (const long start = i; i < last; i++) {
    const float g = gradient[i];
    m[i] = b1 * m[i] + c1 * g;
    v[i] = b2 * v[i] + c2 * g * g;
    const float s = step * factor[16 * phase + (i - start)];
    value[i] -= s * m[i] / (__builtin_sqrtf(v[i]) * root + eps);
  }
}

}  // namespace twinloop_adam
"""
