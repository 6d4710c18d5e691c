// expect: accept
// problem: gauss
// The last vector of the inputs is read whole, past their ends; what is there has no bearing on what is written.
#include <cstring>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  int64_t whole = n / 16 * 16;
  work(x, y, out, whole);
  float last_x[16], last_y[16], last[16];
  memcpy(last_x, x + whole, sizeof last_x);
  memcpy(last_y, y + whole, sizeof last_y);
  work(last_x, last_y, last, 16);
  memcpy(out + whole, last, (n - whole) * sizeof(float));
}
