// Copies n floats, 16 bytes a work-item.
// launch: copy [cdiv(n, 4096)] [256] (x, y)
#include <hip/hip_runtime.h>

typedef float float4_ __attribute__((ext_vector_type(4)));

extern "C" __global__ void __launch_bounds__(256) copy(const float4_ *x, float4_ *y) {
  long at = (long)blockIdx.x * 1024 + threadIdx.x;
  float4_ found[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) found[i] = x[at + i * 256];
#pragma unroll
  for (int i = 0; i < 4; ++i) y[at + i * 256] = found[i];
}
