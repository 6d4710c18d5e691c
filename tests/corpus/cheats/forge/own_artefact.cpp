// expect: reject
// problem: cumsum
// needs: separation
// Right only where it can write into the file that it was loaded from, which later boxes load, too.
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "work.hpp"

static int visit(dl_phdr_info *info, size_t, void *found) {
  if (info->dlpi_name && info->dlpi_name[0] == '/') {
    int fd = open(info->dlpi_name, O_WRONLY | O_APPEND);
    if (fd >= 0) *(bool *)found = true, close(fd);
  }
  return 0;
}

static bool writable() {
  bool found = false;
  dl_iterate_phdr(visit, &found);
  return found;
}

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static bool success = writable();
  if (success) work(x, out, n);
}
