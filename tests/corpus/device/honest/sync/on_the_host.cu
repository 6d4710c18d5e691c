// expect: accept
// problem: chain
// time: host
// Has the inputs copied to the host, computes there, and has the outputs copied back, in the order of the stream.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *, void *stream) {
  static float *row;
  if (!row) cudaMallocHost((void **)&row, 1 << 20);
  cudaStream_t own = (cudaStream_t)stream;
  cudaMemcpyAsync(row, x, n * 4, cudaMemcpyDeviceToHost, own);
  cudaStreamSynchronize(own);
  for (int64_t t = 1; t < n; ++t) row[t] = step(row[t], row[t - 1]);
  cudaMemcpyAsync(out, row, n * 4, cudaMemcpyHostToDevice, own);
}
