// The definition, one work-item for each output; neighbours read neighbouring inputs.
// launch: naive [cdiv(n * c * (d - kd + 1) * h * w, BX)] [BX] (x, f, y, n, c, d, h, w, kd, kh, kw)
#include <hip/hip_runtime.h>

constexpr int BX = 256;  // tune: 64 128 256 512 | block: work-items of a block, along w

#if SIZE == 4
typedef float element;
static __device__ float wide(element v) { return v; }
static __device__ element narrow(float v) { return v; }
#elif HALF
typedef _Float16 element;
static __device__ float wide(element v) { return (float)v; }
static __device__ element narrow(float v) { return (element)v; }
#else
typedef unsigned short element;
static __device__ float wide(element v) { return __uint_as_float((unsigned)v << 16); }
static __device__ element narrow(float v) {
  unsigned bits = __float_as_uint(v);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#endif

extern "C" __global__ __launch_bounds__(BX) void naive(const element *x, const element *f, element *y, int n, int c, int d, int h,
                                                       int w, int kd, int kh, int kw) {
  long at = (long)blockIdx.x * BX + threadIdx.x;
  int depth = d - kd + 1;
  if (at >= (long)n * c * depth * h * w) return;
  int q = at % w, r = at / w % h, z = at / w / h % depth;
  long p = at / w / h / depth;
  const element *taps = f + p % c * kd * kh * kw;
  float sum = 0;
  for (int i = 0; i < kd; ++i)
    for (int j = 0; j < kh; ++j)
      for (int k = 0; k < kw; ++k) {
        int row = r + j - kh / 2, column = q + k - kw / 2;
        if (row < 0 || row >= h || column < 0 || column >= w) continue;
        sum += wide(x[((p * d + z + i) * h + row) * w + column]) * wide(taps[(i * kh + j) * kw + k]);
      }
  y[at] = narrow(sum);
}
