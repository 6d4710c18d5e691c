// The definition, one thread for each output; neighbouring threads read neighbouring inputs.
// launch: naive [cdiv(n * c * (d - kd + 1) * h * w, BX)] [BX] (x, f, y, n, c, d, h, w, kd, kh, kw)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int BX = 256;  // tune: 64 128 256 512 | block: threads of a block, along w

#if SIZE == 4
typedef float element;
#elif HALF
typedef __half element;
#else
typedef __nv_bfloat16 element;
#endif

extern "C" __global__ void __launch_bounds__(BX)
    naive(const element *x, const element *f, element *y, int n, int c, int d, int h, int w, int kd, int kh, int kw) {
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
        sum += float(x[((p * d + z + i) * h + row) * w + column]) * float(taps[(i * kh + j) * kw + k]);
      }
  y[at] = element(sum);
}
