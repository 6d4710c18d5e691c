// expect: contained
// problem: gauss
// Writes to both standard streams for as long as it lives.
#include <unistd.h>

#include <cstdint>
#include <vector>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  std::vector<char> text(1 << 16, 'x');
  for (;;)
    if (write(1, text.data(), text.size()) < 0 || write(2, text.data(), text.size()) < 0) usleep(100);
}
