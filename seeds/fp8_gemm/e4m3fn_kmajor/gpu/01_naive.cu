// The definition, operands K-major, one thread for each element of c; a thread reads 16 of k of a row at a time.
// launch: naive [cdiv(n, BX), cdiv(m, BY)] [BX, BY] (a, b, a_scale, b_scale, c, m, n, k)
// require: BX * BY <= 1024
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if !defined(K_MAJOR) || !K_MAJOR
#error "operands are read K-major: problem.variant=e4m3fn_kmajor"
#endif

enum { arith, table };

constexpr int DECODE = table;  // tune: arith table | decode: shift into an fp16, or a 256-entry table in shared memory
constexpr int BX = 16;         // tune: 8 16 32 | block: threads along the columns of c
constexpr int BY = 16;         // tune: 8 16 32 | block: threads along the rows of c
constexpr int UNROLL = 1;      // tune: 1 2 4 8 | unroll: pieces of 16 of k in flight

__device__ float decode(unsigned x) {
  if ((x & 0x7f) == 0x7f) return __int_as_float(0x7fc00000);
  // The fields fit an fp16, whose exponent's bias is 15; its subnormals are exact.
  return __half2float(__ushort_as_half((unsigned short)((x & 0x80) << 8 | (x & 0x7f) << 7))) * 256.0f;
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
    const uint4 *x = (const uint4 *)(a + i * k + kb * 128), *y = (const uint4 *)(b + j * k + kb * 128);
    float part = 0;
#pragma unroll UNROLL
    for (int piece = 0; piece < 8; ++piece) {
      uint4 p = x[piece], q = y[piece];
      unsigned left[4] = {p.x, p.y, p.z, p.w}, right[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int z = 0; z < 16; ++z) {
        unsigned u = left[z / 4] >> z % 4 * 8 & 255, v = right[z / 4] >> z % 4 * 8 & 255;
        part += DECODE == table ? values[u] * values[v] : decode(u) * decode(v);
      }
    }
    sum += part * a_scale[(long)kb * m + i] * b_scale[(long)kb * blocks + j / 128];
  }
  c[i * n + j] = __float2bfloat16_rn(sum);
}
