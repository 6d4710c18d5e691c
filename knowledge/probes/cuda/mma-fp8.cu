// Eight independent chains of mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32, all warps busy. Operands are all v and all 1, so that every sum is known.
// launch: rate [out] [128] (x, y, turns)
#include <cstdint>

extern "C" __global__ void __launch_bounds__(128) rate(const float *x, float *y, int64_t turns) {
  float sum[8][4];
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] = 0;
  uint32_t a = ((uint32_t)(x[0] == 1 ? 0x38 : x[0] == 2 ? 0x40 : 0x44)) * 0x01010101u, b = 0x38383838u;
  for (int64_t turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
          "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
          : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
          : "r"(a), "r"(b));
  }
  float total = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) total += sum[j][threadIdx.x % 4];
  if (threadIdx.x == blockIdx.x % 128) y[blockIdx.x] = total;
}
