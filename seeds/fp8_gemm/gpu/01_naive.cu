// The definition, one thread for each element of c; neighbouring threads share the values of a and read b side by side.
// launch: naive [cdiv(n, BX), cdiv(m, BY)] [BX, BY] (a, b, a_scale, b_scale, c, m, n, k)
// require: BX * BY <= 1024
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { arith, table };

constexpr int DECODE = table;  // tune: arith table | decode: shift into an fp16, or a 256-entry table in shared memory
constexpr int BX = 32;         // tune: 16 32 64 | block: threads along the columns of c
constexpr int BY = 8;          // tune: 4 8 16 | block: threads along the rows of c
constexpr int UNROLL = 4;      // tune: 1 2 4 8 16 | unroll: steps of k in flight

__device__ float decode(unsigned x) {
  if (E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f) return __int_as_float(0x7fc00000);
  // The fields fit an fp16, whose exponent's bias is 15; its subnormals are exact.
  __half value = __ushort_as_half((unsigned short)((x & 0x80) << 8 | (x & 0x7f) << 7));
  return __half2float(value) * (E4M3FNUZ ? 128.0f : 256.0f);
}

extern "C" __global__ void __launch_bounds__(BX *BY)
    naive(const unsigned char *a, const unsigned char *b, const float *a_scale, const float *b_scale,
          __nv_bfloat16 *c, int m, int n, int k) {
  __shared__ float values[256];
  if (DECODE == table) {
    for (int x = threadIdx.y * BX + threadIdx.x; x < 256; x += BX * BY) values[x] = decode(x);
    __syncthreads();
  }
  long i = blockIdx.y * BY + threadIdx.y, j = blockIdx.x * BX + threadIdx.x;
  if (i >= m || j >= n) return;
  int blocks = (n + 127) / 128;
  float sum = 0;
  for (int kb = 0; kb < k / 128; ++kb) {
    const unsigned char *x = a + (long)kb * 128 * m + i, *y = b + (long)kb * 128 * n + j;
    float part = 0;
#pragma unroll UNROLL
    for (int kk = 0; kk < 128; ++kk) {
      unsigned p = x[(long)kk * m], q = y[(long)kk * n];
      part += DECODE == table ? values[p] * values[q] : decode(p) * decode(q);
    }
    sum += part * a_scale[(long)kb * m + i] * b_scale[(long)kb * blocks + j / 128];
  }
  c[i * n + j] = __float2bfloat16_rn(sum);
}
