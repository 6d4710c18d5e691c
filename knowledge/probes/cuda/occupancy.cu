// How many blocks of 128 threads are on a multiprocessor at once, by the shared memory that each asks for: blocks count themselves in and wait.
// workspace: count int32 4096
// launch: clear [4] [1024] (count, y)
// launch: stay [4096] [128] (count, y, 0)
// launch: clear [4] [1024] (count, y)
// launch: stay [4096] [128] shared 16384 (count, y, 1)
// launch: clear [4] [1024] (count, y)
// launch: stay [2048] [128] shared 32768 (count, y, 2)
// launch: clear [4] [1024] (count, y)
// launch: stay [1024] [128] shared 65536 (count, y, 3)
// launch: clear [4] [1024] (count, y)
// launch: stay [1024] [128] shared 98304 (count, y, 4)
#include <cstdint>

extern "C" __global__ void clear(int *count, int *y) {
  int at = blockIdx.x * 1024 + threadIdx.x;
  count[at] = 0;
  if (at >= 1024 && at < 1029 && y[at - 1024] < 0 | y[at - 1024] > 64) y[at - 1024] = 0;
}

extern "C" __global__ void __launch_bounds__(128) stay(int *count, int *y, int which) {
  uint32_t place;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(place));
  if (threadIdx.x) return;
  int now = atomicAdd(count + place % 4096, 1) + 1;
  long long start = clock64();
  while (clock64() - start < 20000) {}
  atomicMax(y + which, now);
  atomicSub(count + place % 4096, 1);
}
