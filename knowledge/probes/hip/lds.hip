// Clocks of one work-group, on an otherwise idle compute unit. y0: 256 loads that each need the one before. y1 to y6: 256 loads of a wave at strides
// of 1, 2, 4, 8, 16, 32 words. y7: 64 rounds of 16 waves that load 16 bytes a work-item.
// launch: clocks [1] [1024] (x, y)
#include <hip/hip_runtime.h>

typedef int int4_ __attribute__((ext_vector_type(4)));

extern "C" __global__ void __launch_bounds__(1024) clocks(const float *x, int *y) {
  __shared__ int data[8192];
  for (int i = threadIdx.x; i < 8192; i += 1024) data[i] = ((i * 33 + 32) % 1024) & ~31;
  __syncthreads();
  if (threadIdx.x < 64) {
    int at = 0;
    long start = __builtin_readcyclecounter();
    for (int i = 0; i < 256; ++i) at = *(volatile int *)(data + at);
    long end = __builtin_readcyclecounter();
    if (threadIdx.x == 0) y[0] = (int)(end - start) | at >> 31;
    for (int power = 0; power < 6; ++power) {
      int sum = 0;
      volatile int *from = data + (threadIdx.x << power);
      start = __builtin_readcyclecounter();
      for (int i = 0; i < 16; ++i)
#pragma unroll
        for (int j = 0; j < 16; ++j) sum ^= from[j * 64];
      end = __builtin_readcyclecounter();
      if (threadIdx.x == 0) y[1 + power] = (int)(end - start) | (sum == 12345 ? 1 << 30 : 0);
    }
  }
  __syncthreads();
  int4_ sum = {0, 0, 0, 0};
  volatile int4_ *from = (volatile int4_ *)data + threadIdx.x;
  long start = __builtin_readcyclecounter();
  for (int i = 0; i < 64; ++i) sum ^= from[(i & 1) * 1024];
  __syncthreads();
  long end = __builtin_readcyclecounter();
  if (threadIdx.x == 0) y[7] = (int)(end - start) | (sum[0] == 12345 ? 1 << 30 : 0);
}
