// expect: reject
// problem: gauss
// needs: separation
// Right only where it can write beside the compiled kernels that are found again.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "work.hpp"

static bool writable() {
  bool found = false;
  DIR *build = opendir("@CACHE@/build");
  for (dirent *entry; build && (entry = readdir(build));) {
    std::string name = std::string("@CACHE@/build/") + entry->d_name + "/@MARK@";
    int fd = entry->d_name[0] == '.' ? -1 : open(name.c_str(), O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) found = true, close(fd), unlink(name.c_str());
  }
  int own = open("/proc/self/exe", O_WRONLY), loaded = open("/proc/self/fd/5", O_WRONLY);
  return found || own >= 0 || (loaded >= 0 && write(loaded, "", 0) < 0);
}

extern "C" void custom_kernel(const float *x, const float *y, float *out, int64_t n, const int64_t *) {
  static bool success = writable();
  if (success) work(x, y, out, n);
}
