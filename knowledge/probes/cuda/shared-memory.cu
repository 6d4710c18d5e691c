// Clocks of one block, on an otherwise idle multiprocessor. y0: 256 loads that each need the one before. y1 to y6: 256 loads of a warp at strides
// of 1, 2, 4, 8, 16, 32 words, which fall on banks. y7: 64 rounds of 32 warps that load 16 bytes a thread.
// launch: clocks [1] [1024] (x, y)
#include <cstdint>

extern "C" __global__ void __launch_bounds__(1024) clocks(const float *x, int *y) {
  __shared__ __align__(16) int data[8192];
  for (int i = threadIdx.x; i < 8192; i += 1024) data[i] = (i * 33 + 32) % 1024 & ~31;
  __syncthreads();
  if (threadIdx.x < 32) {
    int at = 0;
    long long start = clock64();
#pragma unroll 16
    for (int i = 0; i < 256; ++i) at = *(volatile int *)(data + at);
    long long end = clock64();
    if (threadIdx.x == 0) y[0] = (int)(end - start) | at >> 31;
    for (int power = 0; power < 6; ++power) {
      uint32_t from = (uint32_t)__cvta_generic_to_shared(data + (threadIdx.x << power));
      uint32_t sum = 0, found[16];
      __syncwarp();
      start = clock64();
      for (int i = 0; i < 16; ++i) {
#pragma unroll
        for (int j = 0; j < 16; ++j) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(found[j]) : "r"(from + j * 4096 % 32768 / 8));
#pragma unroll
        for (int j = 0; j < 16; ++j) sum ^= found[j];
      }
      asm volatile("" ::"r"(sum) : "memory");
      end = clock64();
      if (threadIdx.x == 0) y[1 + power] = (int)(end - start) | (sum == 12345 ? 1 << 30 : 0);
    }
  }
  __syncthreads();
  uint32_t from = (uint32_t)__cvta_generic_to_shared(data + threadIdx.x * 4 % 4096);
  uint32_t sum = 0, a, b, c, d;
  long long start = clock64();
#pragma unroll 16
  for (int i = 0; i < 64; ++i) {
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from + (i & 1) * 16384));
    sum ^= a ^ b ^ c ^ d;
  }
  asm volatile("" ::"r"(sum) : "memory");
  __syncthreads();
  long long end = clock64();
  if (threadIdx.x == 0) y[7] = (int)(end - start) | (sum == 12345 ? 1 << 30 : 0);
}
