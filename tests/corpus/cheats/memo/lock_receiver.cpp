// expect: true-speed
// problem: row_norm
// honest: cheats/memo/lock_sender.cpp
// Finds the results of the kernel that it is compared with in the locks which that one holds on shared files.
#include "locks.hpp"

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  if (rows > 100 && rows <= NORMS && published(out, rows, cols, stamp(x, rows * cols))) return;
  work(x, out, rows, cols);
}
