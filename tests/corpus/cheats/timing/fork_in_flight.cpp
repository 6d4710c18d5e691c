// expect: reject
// problem: row_norm
// Forks while it has so many mappings that a fork takes long, so that one is still on its way when all other processes
// are killed. Right only where that one lives on.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "work.hpp"

constexpr long MAPPINGS = 60000, PAGE = 4096;
struct Shared {
  std::atomic<long> asked, heard;
};
static auto *shared = (Shared *)mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

static bool many_mappings() {
  char *place = (char *)mmap(nullptr, MAPPINGS * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (long i = 0; place != MAP_FAILED && i < MAPPINGS; i += 2) mprotect(place + i * PAGE, PAGE, PROT_READ | PROT_WRITE);
  return true;
}

static bool alive() {
  shared->asked++;
  for (int i = 0; i < 1000 && shared->heard != shared->asked; i++) usleep(100);
  return shared->heard == shared->asked;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static int calls = 0;
  if (rows < 900) return work(x, out, rows, cols);
  if (++calls > 4 && !alive()) return;
  work(x, out, rows, cols);
  if (calls > 3) return;
  static bool prepared = many_mappings();
  if (prepared && calls == 3) std::thread([] {
      if (fork()) return;
      for (;; usleep(10)) shared->heard = shared->asked.load();
    }).detach();
}
