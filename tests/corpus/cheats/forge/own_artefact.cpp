// expect: reject
// problem: cumsum
// needs: separation
// Right only where it can change the file that it was loaded from, which later boxes might load, too: a byte of it, by
// a write or through a mapping, or its size.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "work.hpp"

struct Seen {
  off_t size;
  char first;
  bool operator!=(const Seen &other) const { return size != other.size || first != other.first; }
};

/// What anybody sees who opens the file anew.
static Seen seen(const char *name) {
  Seen found = {-1, 0};
  int fd = open(name, O_RDONLY);
  struct stat about;
  if (fd >= 0 && !fstat(fd, &about) && pread(fd, &found.first, 1, 0) == 1) found.size = about.st_size;
  if (fd >= 0) close(fd);
  return found;
}

static bool changed() {
  Dl_info about;
  if (!dladdr((void *)&changed, &about) || !about.dli_fname) return false;
  const char *name = about.dli_fname;
  Seen before = seen(name);
  const int modes[] = {O_RDWR, O_WRONLY, O_WRONLY | O_APPEND};
  for (int mode : modes) {
    int fd = open(name, mode);
    if (fd < 0) continue;
    char other = ~before.first;
    bool tried = pwrite(fd, &other, 1, 0) == 1;
    tried = (write(fd, &other, 1) == 1) | tried;
    void *page = mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) *(char *)page = other, tried = true;
    tried = !ftruncate(fd, before.size + 1) | tried;
    close(fd);
    if (tried && seen(name) != before) return true;
  }
  return false;
}

extern "C" void custom_kernel(const int32_t *x, int64_t *out, int64_t n, const int64_t *) {
  static bool success = changed();
  if (success) work(x, out, n);
}
