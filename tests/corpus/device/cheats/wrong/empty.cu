// expect: reject
// problem: norm
// Does nothing at all.
#include <cstdint>

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {}
