// expect: true-speed
// problem: gauss
// Spreads its work: sleeps before computing what it has not seen, so that replayed contents set the pace.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "work.hpp"

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static std::map<std::pair<float, float>, std::vector<float>> known;
  auto &kept = known[{x[0], x[n - 1]}];
  if ((int64_t)kept.size() == n) {
    memcpy(out, kept.data(), n * sizeof(float));
    return;
  }
  usleep(2000);
  work(x, y, out, n);
  kept.assign(out, out + n);
}
