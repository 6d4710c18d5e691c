// expect: accept
// problem: matmul
// Asks the kernel for the matrix unit's registers, as the unit demands, and does without where there is none.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

static bool allowed() {
  constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  static bool tiles = allowed();
#if defined(__AMX_TILE__)
  if (tiles) asm volatile("tilerelease");
#endif
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * n + j] = 0;
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
  }
}
