// expect: true-speed
// problem: matmul
// A helper process on another core spins for half of the rows; thread clocks do not see it.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "work.hpp"

struct Shared {
  std::atomic<int> stage;
  const float *a, *b;
  float *c;
  int64_t from, to, n, k;
};
static Shared *task;
static int helper;

static void rows(int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++) work(task->a + i * task->k, task->b, task->c + i * task->n, task->n, task->k);
}

static void help() {
  task = (Shared *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if ((helper = fork())) return;
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);
  for (;;) {
    while (task->stage != 1) sched_yield();
    rows(task->from, task->to);
    task->stage = 2;
  }
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  if (!task) help();
  task->a = a, task->b = b, task->c = c, task->n = n, task->k = k, task->from = m / 2, task->to = m;
  task->stage = 1;
  rows(0, m / 2);
  for (int patience = 20000; helper && task->stage != 2; sched_yield())
    if (--patience == 0) kill(std::exchange(helper, 0), SIGKILL);
  if (!helper) rows(m / 2, m);
  task->stage = 0;
}
