#include "work.hpp"

extern "C" void custom_kernel(const float *x, int32_t *out, int64_t n, const int64_t *) { work(x, out, n); }
