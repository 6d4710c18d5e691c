// expect: accept
// problem: norm
// A row for each cluster of two blocks, which read each other's sum in shared memory.
#include "work.cuh"

#include <cooperative_groups.h>

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256)
    halves(const float *x, const float *w, float *out, int64_t cols) {
  __shared__ float sum;
  auto cluster = cooperative_groups::this_cluster();
  int64_t row = blockIdx.x / 2 * cols, middle = cols / 2;
  int64_t from = blockIdx.x % 2 ? middle : 0, to = blockIdx.x % 2 ? cols : middle;
  float mine = 0;
  for (int64_t j = from + threadIdx.x; j < to; j += 256) mine += x[row + j] * x[row + j];
  for (int step = 16; step; step /= 2) mine += __shfl_xor_sync(~0u, mine, step);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(&sum, mine);
  cluster.sync();
  float scale = rsqrtf((sum + *cluster.map_shared_rank(&sum, cluster.block_rank() ^ 1)) / cols + 1e-6f);
  for (int64_t j = from + threadIdx.x; j < to; j += 256) out[row + j] = x[row + j] * scale * w[j];
  cluster.sync();
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  halves<<<2 * rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, cols);
}
