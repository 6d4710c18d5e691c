#pragma once
#include <cstdint>

static constexpr int64_t SIZE = 1 << 18;

/// How often some values occur, in a table of zeros.
static __attribute__((noinline, noipa)) void count(uint32_t *table, const int32_t *x, int64_t n) {
  for (int64_t i = 0; i < n && i < 64; i++) table[static_cast<uint32_t>(x[i]) % SIZE]++;
}
