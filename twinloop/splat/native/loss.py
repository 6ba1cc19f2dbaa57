"""C++ source of the photometric loss and its gradient, compiled by the clang inside Warp.

What is computed is written in `twinloop.splat.loss`. How: SSIM needs the blurs of x, y, x^2 + y^2
and xy (the two variances only enter as their sum), and its gradient the blurs of three more
images. With mu_x, mu_y, A1 = 2 mu_x mu_y + c1, A2 = 2 cov + c2, B1 = mu_x^2 + mu_y^2 + c1,
B2 = var_x + var_y + c2, S = A1 A2 / (B1 B2) and G the (symmetric) blur,

    dS/dx = G*P + 2 x G*Q + y G*R,
    P = dS/d(G*x),   Q = dS/d(G*(x^2 + y^2)) = -S / B2,   R = dS/d(G*xy) = 2 A1 / (B1 B2)

Variances far below the squares they are differences of would cost float32 most of its digits, so x
and y are taken relative to the background, which is 0 in both then. Where the window lies in the
image that changes no variance; at a border, where the part k of its weight lies on zeros, with a
and b the means relative to the background g, it adds g k (a + b + g (1 - k)) to the covariance and
to each variance's half of B2.

Rows stream through three stages, each five rows behind the one before, over rings of sixteen rows:
the whole working set stays in the second-level cache. A band of rows reads what it needs above and
below, so a pixel's arithmetic does not depend on how the image is cut into bands; sums are kept
per row and added by the caller in order. Blurs are vertical first, straight from the ring, then
horizontal; symmetric taps are added before they are multiplied.
"""

SOURCE = r"""
namespace twinloop_loss {

typedef float V __attribute__((vector_size(64)));
typedef float VU __attribute__((vector_size(64), aligned(4)));
typedef int VI __attribute__((vector_size(64)));

constexpr int kRing = 16, kReach = 5, kPad = 16;
constexpr float kC1 = 1e-4f, kC2 = 9e-4f;  // (0.01 L)^2, (0.03 L)^2 for values 0..1

// Half of the 11 taps of a Gaussian with sigma 1.5 px, outermost first.
constexpr float kTap[6] = {0.00102838008f, 0.00759875814f, 0.0360007721f,
                           0.10936069f, 0.213005538f, 0.266011725f};

static inline __attribute__((always_inline)) V load(const float* p) { return *(const VU*)p; }
static inline __attribute__((always_inline)) V magnitude(V v) { return v < 0.0f ? -v : v; }
static inline float total(V v) {
  float t[4] = {};
  for (int i = 0; i < 16; i++) t[i & 3] += v[i];
  return (t[0] + t[1]) + (t[2] + t[3]);
}

// Floats of scratch that a band needs; `stride` is that of one padded row.
static inline int row_stride(int width) { return (width + 15) / 16 * 16 + 2 * kPad; }

template <int N>
struct Ring {  // N images, the last sixteen rows of each
  float* base;
  int stride;
  inline float* row(int image, int y) const {
    return base + ((long)image * kRing + (y & (kRing - 1))) * stride + kPad;
  }
};

// Vertical, then horizontal blur of row y of N images into out[image][0..width).
template <int N>
static inline void blur_row(const Ring<N>& ring, int y, int height, int width, const float* zero,
                            float* middle, float* out) {
  const int stride = ring.stride;
  for (int n = 0; n < N; n++) {
    const float* r[11];
    for (int k = 0; k < 11; k++) {
      const int q = y + k - kReach;
      r[k] = q < 0 || q >= height ? zero : ring.row(n, q);
    }
    float* m = middle + n * stride + kPad;
    for (int x = 0; x < width; x += 16) {
      V v = load(r[5] + x) * kTap[5];
      for (int k = 0; k < 5; k++) v += (load(r[k] + x) + load(r[10 - k] + x)) * kTap[k];
      *(VU*)(m + x) = v;
    }
    float* o = out + n * stride;
    for (int x = 0; x < width; x += 16) {
      V v = load(m + x) * kTap[5];
      for (int k = 0; k < 5; k++)
        v += (load(m + x + k - kReach) + load(m + x + kReach - k)) * kTap[k];
      *(VU*)(o + x) = v;
    }
  }
}

// How much of the window's weight lies outside 0..size-1 when it is centred at `at`.
static inline float missing(int at, int size) {
  double sum = 0.0;
  for (int k = -kReach; k <= kReach; k++)
    if (at + k >= 0 && at + k < size) sum += kTap[kReach - (k < 0 ? -k : k)];
  return (float)(1.0 - sum);
}

// Rows [first, last) of the image. image, truth (h, w, 3), alpha, mask (h, w), all contiguous;
// `sums` (h, 3): per row sum |x - y|, sum (1 - SSIM), sum |alpha - mask|. With `image_gradient`
// and `alpha_gradient` (not null) also the gradient of
// c_l1 sum |x - y| + c_ssim sum (1 - SSIM) + c_alpha sum |alpha - mask|.
// `scratch`: (4 + 3) * 16 + 4 + 4 + 2 rows of row_stride(width) floats, zero.
static void band(int first, int last, int width, int height, const float* image,
                 const float* alpha, const float* truth, const float* mask, float b0, float b1,
                 float b2, float c_l1, float c_ssim, float c_alpha, float* image_gradient,
                 float* alpha_gradient, float* sums, float* scratch) {
  const int stride = row_stride(width);
  const bool back = image_gradient != nullptr;
  const float background[3] = {b0, b1, b2};
  Ring<4> in{scratch, stride};  // x, y, x^2 + y^2, x y
  Ring<3> part{scratch + 4l * kRing * stride, stride};  // P, Q, R
  float* middle = scratch + 7l * kRing * stride;
  float* blurred = middle + 4 * stride;
  const float* zero = blurred + 4 * stride + kPad;
  float* missing_x = blurred + 5 * stride;
  for (int x = 0; x < width; x++) missing_x[x] = missing(x, width);
  VI lane;
  for (int i = 0; i < 16; i++) lane[i] = i;

  for (int y = first; y < last; y++) {
    const float *a = alpha + (long)y * width, *m = mask + (long)y * width;
    V sum = {};
    int full = 0;
    for (; full + 16 <= width; full += 16) sum += magnitude(load(a + full) - load(m + full));
    for (int x = full; x < width; x++) sum[x - full] += __builtin_fabsf(a[x] - m[x]);
    sums[y * 3 + 0] = 0.0f;
    sums[y * 3 + 1] = 0.0f;
    sums[y * 3 + 2] = total(sum);
    if (!back) continue;
    float* g = alpha_gradient + (long)y * width;
    for (int x = 0; x < width; x++) {
      const float d = a[x] - m[x];
      g[x] = d > 0.0f ? c_alpha : (d < 0.0f ? -c_alpha : 0.0f);
    }
  }

  const int halo = back ? kReach : 0;  // rows of P, Q, R that the gradient needs around the band
  for (int c = 0; c < 3; c++) {
    const float bg = background[c];
    for (int t = first - halo - kReach; t < last + halo + kReach; t++) {
      if (t >= 0 && t < height) {  // first stage: what both pictures show
        const float *a = alpha + (long)t * width, *m = mask + (long)t * width;
        const float *i = image + (long)t * width * 3 + c, *w = truth + (long)t * width * 3 + c;
        float *px = in.row(0, t), *py = in.row(1, t), *ps = in.row(2, t), *pp = in.row(3, t);
        for (int x = 0; x < width; x++) {
          const float u = i[3 * x] - a[x] * bg;
          const float v = (w[3 * x] - bg) * m[x];
          px[x] = u;
          py[x] = v;
          ps[x] = u * u + v * v;
          pp[x] = u * v;
        }
      }
      const int s = t - kReach;  // second stage: SSIM of row s
      if (s >= 0 && s < height && s >= first - halo && s < last + halo) {
        blur_row<4>(in, s, height, width, zero, middle, blurred);
        float *p = part.row(0, s), *q = part.row(1, s), *r = part.row(2, s);
        V sum = {};
        const float missing_y = missing(s, height);
        for (int x = 0; x < width; x += 16) {
          const V a = load(blurred + x), b = load(blurred + stride + x);
          const V both = load(blurred + 2 * stride + x), cross = load(blurred + 3 * stride + x);
          const V missing_h = load(missing_x + x), inside = (1.0f - missing_h) * (1.0f - missing_y);
          const V lack = bg * (missing_h + missing_y - missing_h * missing_y);
          const V mx = a + bg * inside, my = b + bg * inside;
          const V extra = lack * (a + b + bg * inside);
          const V A1 = 2.0f * mx * my + kC1, A2 = 2.0f * (cross - a * b + extra) + kC2;
          const V B1 = mx * mx + my * my + kC1;
          const V B2 = both - (a * a + b * b) + 2.0f * extra + kC2;
          const V inverse = 1.0f / (B1 * B2), S = A1 * A2 * inverse;
          const VI shown = lane < width - x;
          sum += shown ? 1.0f - S : V{};
          const V by1 = S * (B2 * inverse), by2 = S * (B1 * inverse);  // S / B1, S / B2
          const V P = 2.0f * ((my * A2 + A1 * (lack - b)) * inverse - mx * by1 - by2 * (lack - a));
          *(VU*)(p + x) = shown ? P : V{};
          *(VU*)(q + x) = shown ? -by2 : V{};
          *(VU*)(r + x) = shown ? 2.0f * A1 * inverse : V{};
        }
        if (s >= first && s < last) sums[s * 3 + 1] += total(sum);
      }
      const int g = back ? s - kReach : s;  // third stage: |x - y| and the gradient of row g
      if (g < first || g >= last) continue;
      const float *px = in.row(0, g), *py = in.row(1, g);
      V sum = {};
      for (int x = 0; x < width; x += 16) sum += magnitude(load(px + x) - load(py + x));
      sums[g * 3] += total(sum);
      if (!back) continue;
      blur_row<3>(part, g, height, width, zero, middle, blurred);
      float* result = blurred + 3 * stride;
      for (int x = 0; x < width; x += 16) {
        const V u = load(px + x), v = load(py + x), d = u - v;
        const V structure = load(blurred + x) + 2.0f * u * load(blurred + stride + x) +
                            v * load(blurred + 2 * stride + x);
        const V sign = d > 0.0f ? V{} + c_l1 : (d < 0.0f ? V{} - c_l1 : V{});
        *(VU*)(result + x) = sign - c_ssim * structure;
      }
      float* gi = image_gradient + (long)g * width * 3 + c;
      float* ga = alpha_gradient + (long)g * width;
      for (int x = 0; x < width; x++) {
        gi[3 * x] = result[x];
        ga[x] -= result[x] * bg;
      }
    }
  }
}

}  // namespace twinloop_loss
"""
