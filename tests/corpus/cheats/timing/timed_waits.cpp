// expect: true-speed
// problem: row_norm
// Fifty threads wait for moments that come while its rival is timed.
#include <time.h>

#include <thread>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static bool made = false;
  if (!made && rows > 100) {
    made = true;
    for (int i = 0; i < 50; i++)
      std::thread([i] {
        timespec pause{0, 150000 + i * 7000};
        for (;;) nanosleep(&pause, nullptr);
      }).detach();
  }
  work(x, out, rows, cols);
}
