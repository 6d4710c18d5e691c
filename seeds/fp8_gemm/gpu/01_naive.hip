// The definition: one work-item for each element of c, which decodes both operands by formula. No reuse of anything.
//
// launch: naive [cdiv(n, BX), cdiv(m, BY)] [BX, BY] (a, b, a_scale, b_scale, c, m, n, k)
#include <hip/hip_runtime.h>

constexpr int BX = 64;     // tune: 32 64 128 256 | block: columns of c per block, side by side in b and in c
constexpr int BY = 4;      // tune: 1 2 4 8 | block: rows of c per block
constexpr int UNROLL = 4;  // tune: 1 2 4 8 16 | unroll: steps along k whose loads are under way together

static __device__ float decode(unsigned x) {
  unsigned exponent = x >> 3 & 15, fraction = x & 7;
  if (E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000);
  float size = exponent ? __uint_as_float((exponent + (E4M3FNUZ ? 119 : 120)) << 23 | fraction << 20)
                        : fraction * (E4M3FNUZ ? 0x1p-10f : 0x1p-9f);
  return x & 0x80 ? -size : size;
}

static __device__ uint16_t bf16(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

extern "C" __global__ __launch_bounds__(BX * BY) void naive(const uint8_t *a, const uint8_t *b, const float *a_scale,
                                                            const float *b_scale, uint16_t *c, int m, int n, int k) {
  int i = blockIdx.y * BY + threadIdx.y, j = blockIdx.x * BX + threadIdx.x;
  if (i >= m || j >= n) return;
  int scale_rows = (n + 127) / 128;
  float sum = 0;
  for (int kb = 0; kb < k / 128; ++kb) {
    float part = 0;
#pragma unroll UNROLL
    for (int kk = kb * 128; kk < kb * 128 + 128; ++kk)
      part += decode(a[(int64_t)kk * m + i]) * decode(b[(int64_t)kk * n + j]);
    sum += part * (a_scale[(int64_t)kb * m + i] * b_scale[(int64_t)kb * scale_rows + j / 128]);
  }
  c[(int64_t)i * n + j] = bf16(sum);
}
