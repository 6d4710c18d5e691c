// expect: harmless
// problem: gauss
// SysV memory, semaphores and queues belong to no process and outlive them all.
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include <cstdint>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static int made = shmget(0x@PORT@, 1 << 20, IPC_CREAT | 0666) + semget(0x@PORT@, 4, IPC_CREAT | 0666) +
                    msgget(0x@PORT@, IPC_CREAT | 0666);
  work(x, y, out, made > -9 ? n : 0);
}
