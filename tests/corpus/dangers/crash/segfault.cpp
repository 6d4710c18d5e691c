// expect: contained
// problem: gauss
// sample: yes
// Writes to an address that nobody owns.
#include <cstdint>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) { *(volatile int *)8 = 1; }
