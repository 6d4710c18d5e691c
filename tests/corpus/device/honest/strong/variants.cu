// expect: accept
// problem: gemm
// launch: gemm_tiles [cdiv(n, 64), cdiv(m, 64)] [256] (a, b, c, m, n, k) if SPLIT == 1
// launch: clear [cdiv(m * n, 256)] [256] (c, m * n) if SPLIT > 1
// launch: parts [cdiv(n, 64), cdiv(m, 64), SPLIT] [256] (a, b, c, m, n, k) if SPLIT > 1
// dispatch: if k >= 512: SPLIT=2
// Another way for another class of shapes.
#include "work.cuh"

constexpr int SPLIT = 1;

extern "C" __global__ void clear(float *c, int count) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) c[i] = 0;
}

extern "C" __global__ void __launch_bounds__(256) parts(const float *a, const float *b, float *c, int m, int n, int k) {
  int depth = (k + SPLIT - 1) / SPLIT, from = blockIdx.z * depth;
  tile(a, b, c, m, n, k, blockIdx.y * 64, blockIdx.x * 64, from, min(from + depth, k), true);
}
