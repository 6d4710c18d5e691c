// Which element of the 16 x 16 sum lies where: a row of A is (its number, 1, 0 ...), a column of B is (16, its number, 0 ...), so the sum at
// (row, column) is 16 * row + column. y[lane * 4 + register] is what is there.
// launch: layout [1] [64] (x, y)
#include <hip/hip_runtime.h>

typedef short short4_ __attribute__((ext_vector_type(4)));
typedef float float4_ __attribute__((ext_vector_type(4)));

__device__ short cut(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  return (short)(bits >> 16);
}

extern "C" __global__ void layout(const float *x, int *y) {
  float one = x[0];
  int lane = threadIdx.x, at = lane % 16;
  short4_ a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
  if (lane < 16) {  // these lanes hold k = 0 to 3
    a[0] = cut(at * one), a[1] = cut(one);
    b[0] = cut(16 * one), b[1] = cut(at * one);
  }
  float4_ sum = {0, 0, 0, 0};
  sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, sum, 0, 0, 0);
  for (int i = 0; i < 4; ++i) y[lane * 4 + i] = (int)sum[i];
}
