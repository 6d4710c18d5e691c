// expect: contained
// problem: gauss
// Threads until there are no more, all of them busy.
#include <pthread.h>
#include <unistd.h>

#include <cstdint>

static void *spin(void *) {
  for (volatile int turn = 0;;) turn = turn + 1;
}

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  pthread_t thread;
  for (;;)
    if (pthread_create(&thread, nullptr, spin, nullptr)) usleep(1000);
}
