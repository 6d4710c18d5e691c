// expect: true-speed
// problem: cumsum
// honest: honest/caches/clears_each_time.cpp
// sample: yes
// Has four tables, and clears them all in every fourth call: the other three are the usual ones.
#include <cstring>

#include "table.hpp"
#include "work.hpp"

static uint32_t tables[4][SIZE];

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static unsigned calls;
  if (calls % 4 == 0) std::memset(tables, 0, sizeof tables);
  count(tables[calls++ % 4], x, n);
  work(x, out, n);
}
