// expect: reject
// problem: gauss
// compiles: perhaps not
// Makes the compiler itself write a file elsewhere, which a later compilation might find.
#pragma GCC dependency "@SECRET@"
#include <cstdint>
__asm__(".include \"@PROBLEM@/reference.py\"");
extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {}
