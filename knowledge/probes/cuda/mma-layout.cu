// Which element of the 16 x 8 sum lies where: a row of A is (its number, 1, 0 ...), a column of B is (8, its number, 0 ...), so the sum at (row,
// column) is 8 * row + column. y[lane * 4 + register] is what is there.
// launch: layout [1] [32] (x, y)
#include <cstdint>

__device__ uint32_t pair(float low, float high) {
  return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
}

extern "C" __global__ void layout(const float *x, int *y) {
  float one = x[0], sum[4] = {0, 0, 0, 0};
  int lane = threadIdx.x, row = lane / 4, column = lane / 4;
  bool first = lane % 4 == 0;  // these lanes hold k = 0 and 1
  uint32_t a[4] = {first ? pair(row * one, one) : 0, first ? pair((row + 8) * one, one) : 0, 0, 0};
  uint32_t b[2] = {first ? pair(8 * one, column * one) : 0, 0};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  for (int i = 0; i < 4; ++i) y[lane * 4 + i] = (int)sum[i];
}
