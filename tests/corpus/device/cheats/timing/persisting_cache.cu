// expect: true-speed
// problem: norm
// Has the cache keep the inputs, so that flushing it does not help.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static bool once = (cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 32 << 20), true);
  (void)once;
  cudaStreamAttrValue window = {};
  window.accessPolicyWindow.base_ptr = (void *)x;
  window.accessPolicyWindow.num_bytes = rows * cols * sizeof(float) < 32 << 20 ? rows * cols * sizeof(float) : 32 << 20;
  window.accessPolicyWindow.hitRatio = 1.0f;
  window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaStreamSetAttribute((cudaStream_t)stream, cudaStreamAttributeAccessPolicyWindow, &window);
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
