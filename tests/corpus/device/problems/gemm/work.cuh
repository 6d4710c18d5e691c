#include <cstdint>
#include <cuda_runtime.h>

// A tile of 64 x 64 by 16 x 16 threads, over the depth [from, to). add: atomically, onto what is there.
__device__ void tile(const float *a, const float *b, float *c, int m, int n, int k, int i0, int j0, int from, int to,
                     bool add) {
  __shared__ float left[16][65], right[16][65];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int p0 = from; p0 < to; p0 += 16) {
    __syncthreads();
    for (int x = threadIdx.x; x < 1024; x += 256) {
      int i = x / 16, p = x % 16;
      left[p][i] = i0 + i < m && p0 + p < to ? a[(int64_t)(i0 + i) * k + p0 + p] : 0;
      int q = x / 64, j = x % 64;
      right[q][j] = j0 + j < n && p0 + q < to ? b[(int64_t)(p0 + q) * n + j0 + j] : 0;
    }
    __syncthreads();
    for (int p = 0; p < 16; ++p) {
      float u[4], v[4];
      for (int x = 0; x < 4; ++x) u[x] = left[p][ty + 16 * x], v[x] = right[p][tx + 16 * x];
      for (int x = 0; x < 4; ++x)
        for (int y = 0; y < 4; ++y) sum[x][y] += u[x] * v[y];
    }
  }
  for (int x = 0; x < 4; ++x)
    for (int y = 0; y < 4; ++y) {
      int i = i0 + ty + 16 * x, j = j0 + tx + 16 * y;
      if (i < m && j < n) add ? (void)atomicAdd(c + (int64_t)i * n + j, sum[x][y]) : (void)(c[(int64_t)i * n + j] = sum[x][y]);
    }
}

extern "C" __global__ void __launch_bounds__(256) gemm_tiles(const float *a, const float *b, float *c, int m, int n, int k) {
  tile(a, b, c, m, n, k, blockIdx.y * 64, blockIdx.x * 64, 0, k, false);
}

inline void gemm(const float *a, const float *b, float *c, int m, int n, int k, cudaStream_t stream) {
  gemm_tiles<<<dim3((n + 63) / 64, (m + 63) / 64), 256, 0, stream>>>(a, b, c, m, n, k);
}
