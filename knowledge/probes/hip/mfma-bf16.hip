// Four independent chains of f32_32x32x8bf16_1k, all waves busy. Operands are all v and all 1, so that every sum is known.
// launch: rate [out] [256] (x, y, turns)
#include <hip/hip_runtime.h>

typedef short short4_ __attribute__((ext_vector_type(4)));
typedef float float16_ __attribute__((ext_vector_type(16)));

extern "C" __global__ void __launch_bounds__(256) rate(const float *x, float *y, long turns) {
  float16_ sum[4];
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 16; ++i) sum[j][i] = 0;
  unsigned bits;
  __builtin_memcpy(&bits, x, 4);
  short value = (short)(bits >> 16), one = 0x3f80;
  short4_ a = {value, value, value, value}, b = {one, one, one, one};
  for (long turn = 0; turn < turns; ++turn)
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, sum[j], 0, 0, 0);
  float total = 0;
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 16; ++i) total += sum[j][i];
  if (threadIdx.x == 0) y[blockIdx.x] = total;
}
