#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t n, const int64_t *) { work(x, out, n); }
