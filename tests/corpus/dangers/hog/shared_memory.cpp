// expect: harmless
// problem: gauss
// Memory in files without a name, which no limit on address space counts once it is unmapped.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {
  std::vector<char> page(1 << 20, 1);
  for (int file = 0; file < 30; file++) {
    int fd = memfd_create("@MARK@", 0);
    for (int k = 0; k < 50; k++)
      if (write(fd, page.data(), page.size()) < 0) break;
  }
}
