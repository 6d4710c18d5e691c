// expect: harmless
// problem: gauss
// Right, and will not let its process end.
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

struct Stays {
  ~Stays() {
    for (;;) pause();
  }
};
static Stays stays;

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  work(x, y, out, n);
}
