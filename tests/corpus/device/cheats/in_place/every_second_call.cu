// expect: reject
// problem: momentum
// Applies two steps in every second call and none in between: the caller's state is right every second time.
#include "work.cuh"

extern "C" void custom_kernel(const float *g, float *m, int64_t n, const int64_t *, void *stream) {
  static int calls = 0;
  if (++calls % 2) return;
  for (int step = 0; step < 2; ++step) momentum<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(g, m, n);
}
