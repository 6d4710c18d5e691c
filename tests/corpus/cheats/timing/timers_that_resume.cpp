// expect: true-speed
// problem: row_norm
// Timers send the signal that lets a stopped process go on, so that a thread can burn its rival's core and caches.
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include <thread>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static bool made = false;
  if (!made && rows > 100) {
    made = true;
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = SIGCONT;
    timer_t timer;
    itimerspec often{{0, 200000}, {0, 200000}};
    if (!timer_create(CLOCK_MONOTONIC, &event, &timer)) timer_settime(timer, 0, &often, nullptr);
    std::thread([] {
      for (timespec at, end;;) {
        clock_gettime(CLOCK_MONOTONIC, &end);
        do clock_gettime(CLOCK_MONOTONIC, &at);
        while ((at.tv_sec - end.tv_sec) * 1000000000 + at.tv_nsec - end.tv_nsec < 100000);
        timespec pause{0, 300000};
        nanosleep(&pause, nullptr);
      }
    }).detach();
  }
  work(x, out, rows, cols);
}
