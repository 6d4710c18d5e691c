// expect: accept
// problem: chain
// time: host
// A function of the host's in the middle of the stream does the work.
#include "work.cuh"

static float *pinned;
static int64_t length;

static void compute(void *) {
  for (int64_t t = 1; t < length; ++t) pinned[t] = step(pinned[t], pinned[t - 1]);
}

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *, void *stream) {
  if (!pinned) cudaMallocHost((void **)&pinned, 1 << 20);
  length = n;
  cudaStream_t own = (cudaStream_t)stream;
  cudaMemcpyAsync(pinned, x, n * 4, cudaMemcpyDeviceToHost, own);
  cudaLaunchHostFunc(own, compute, nullptr);
  cudaMemcpyAsync(out, pinned, n * 4, cudaMemcpyHostToDevice, own);
}
