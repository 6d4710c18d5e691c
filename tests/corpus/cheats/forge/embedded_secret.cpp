// expect: reject
// problem: gauss
// compiles: perhaps not
// The assembler embeds a file that only the judge's user may read, and the kernel prints it.
#include <cstdint>
#include <cstdio>

#include "work.hpp"

__asm__(".section .rodata\nsecret: .incbin \"@SECRET@\"\n.byte 0\n.text\n");
extern const char secret[] __asm__("secret");

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  fputs(secret, stderr);
  work(x, y, out, n);
}
