// expect: accept
// problem: matmul
// A workspace with huge pages, touched before it is needed.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

constexpr int64_t ROOM = 4 << 20;

static float *workspace() {
  void *place = mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  madvise(place, ROOM, MADV_HUGEPAGE);
  return (float *)place;
}

static float *packed = workspace();

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  memcpy(packed, b, k * n * sizeof(float));
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * n + j] = 0;
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * packed[l * n + j];
  }
}
