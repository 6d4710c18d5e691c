// expect: accept
// problem: cumsum
// Counts in a table of its own, which it clears in every call.
#include <cstring>

#include "table.hpp"
#include "work.hpp"

static uint32_t table[SIZE];

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  std::memset(table, 0, sizeof table);
  count(table, x, n);
  work(x, out, n);
}
