// expect: contained
// problem: gauss
// Raises the limit on core files as far as it goes, then aborts with much memory in use.
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  rlimit limit;
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_CORE, &limit);
  memset(malloc(50 << 20), 1, 50 << 20);
  abort();
}
