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

struct Row {  // one tensor; factor has 16 * period floats
  float *value;
  const float* gradient;
  float *m, *v;
  const float* factor;
  long long period, count;
};

// Elements [first, last), `first` a multiple of 16 * period.
static void range(long long first, long long last, const Row& row, float b1, float b2, float c1,
                  float c2, float step, float root, float eps) {
  float *value = row.value, *m = row.m, *v = row.v;
  const float *gradient = row.gradient, *factor = row.factor;
  const int period = (int)row.period;
  int phase = 0;
  long long i = first;
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
  for (const long long start = i; i < last; i++) {
    const float g = gradient[i];
    m[i] = b1 * m[i] + c1 * g;
    v[i] = b2 * v[i] + c2 * g * g;
    const float s = step * factor[16 * phase + (i - start)];
    value[i] -= s * m[i] / (__builtin_sqrtf(v[i]) * root + eps);
  }
}

// The `part`-th of `parts` shares of each tensor, cut where the factors start anew.
static void step(const Row* rows, const float* steps, int count, int part, int parts, float b1,
                 float b2, float c1, float c2, float root, float eps) {
  for (int r = 0; r < count; r++) {
    const long long whole = 16 * rows[r].period, n = rows[r].count;
    const long long blocks = (n + whole - 1) / whole;
    const long long first = blocks * part / parts * whole;
    const long long last = blocks * (part + 1) / parts * whole;
    range(first, last < n ? last : n, rows[r], b1, b2, c1, c2, steps[r], root, eps);
  }
}

}  // namespace twinloop_adam
"""
