// expect: harmless
// problem: gauss
// Right, with POSIX shared memory and a semaphore under names of their own.
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static int fd = shm_open("/@MARK@", O_CREAT | O_RDWR, 0666);
  static sem_t *semaphore = sem_open("/@MARK@", O_CREAT, 0666, 1);
  if (fd >= 0 && semaphore && ftruncate(fd, 1 << 20)) out[0] = 0;
  work(x, y, out, n);
}
