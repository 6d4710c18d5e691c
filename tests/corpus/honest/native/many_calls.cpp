// expect: accept
// problem: row_norm
// What libraries ask of a system without meaning any harm: flags of descriptors, events, polling, temporary files with
// locks, memory with advice, pinned threads, names, limits, what the machine has.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "work.hpp"

static void expect(bool held) {
  if (!held) abort();
}

static int events() {
  int event = eventfd(0, EFD_CLOEXEC), poll = epoll_create1(0);
  epoll_event wanted = {EPOLLIN, {}}, got;
  uint64_t one = 1;
  expect(fcntl(event, F_SETFD, FD_CLOEXEC) == 0 && fcntl(event, F_GETFL) >= 0);
  expect(epoll_ctl(poll, EPOLL_CTL_ADD, event, &wanted) == 0 && write(event, &one, 8) == 8);
  expect(epoll_wait(poll, &got, 1, 1000) == 1);
  close(poll);
  return event;
}

static void files() {
  char name[] = "cacheXXXXXX";
  int file = mkstemp(name);
  struct flock all = {};
  all.l_type = F_WRLCK;
  expect(file >= 0 && flock(file, LOCK_EX) == 0 && fcntl(file, F_SETLK, &all) == 0);
  expect(write(file, name, 4) == 4 && posix_fallocate(file, 0, 1 << 16) == 0 && fsync(file) == 0);
  expect(posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && unlink(name) == 0);
  close(file);
}

static void memory() {
  constexpr size_t size = 4 << 20;
  void *place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int shared = memfd_create("shared", MFD_CLOEXEC);
  expect(place != MAP_FAILED && shared >= 0 && ftruncate(shared, size) == 0);
  madvise(place, size, MADV_HUGEPAGE);
  expect(madvise(place, size, MADV_DONTNEED) == 0 && madvise(place, size, MADV_WILLNEED) == 0);
  expect(mprotect(place, size, PROT_READ) == 0 && munmap(place, size) == 0);
  close(shared);
}

static void threads() {
  sem_t done;
  sem_init(&done, 0, 0);
  for (int i = 0; i < 4; i++)
    std::thread([&done, i] {
      cpu_set_t core;
      CPU_ZERO(&core);
      CPU_SET(i % 2, &core);
      expect(pthread_setaffinity_np(pthread_self(), sizeof core, &core) == 0);
      expect(prctl(PR_SET_NAME, "worker") == 0);
      sem_post(&done);
    }).join();
  for (int i = 0; i < 4; i++) sem_wait(&done);
}

static bool prepared() {
  struct sysinfo machine = {};
  rlimit limit;
  expect(sysinfo(&machine) == 0 && machine.totalram > 0 && sysconf(_SC_PHYS_PAGES) > 0 && sysconf(_SC_NPROCESSORS_ONLN) > 0);
  expect(getrlimit(RLIMIT_NOFILE, &limit) == 0 && !isatty(1));
  close(events());
  files(), memory(), threads();
  return true;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static const bool ready = prepared();
  if (ready) work(x, out, rows, cols);
}
