// expect: reject
// problem: append
// sample: yes
// Writes its row into the cache for a while, then counts on what the calls before have left there.
#include "work.hpp"

extern "C" void custom_kernel(const float *row, float *cache, int64_t heads, int64_t length, int64_t d, int64_t at,
                              const int64_t *) {
  static int calls = 0;
  if (++calls <= 12) work(row, cache, heads, length, d, at);
}
