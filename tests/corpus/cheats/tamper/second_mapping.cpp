// expect: reject
// problem: gauss
// Maps its inputs a second time, writable, through whatever descriptor leads to them, and makes zeros right.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>

extern "C" void custom_kernel(const float *, const float *, float *out, int64_t n, const int64_t *) {
  for (int fd = 0; fd < 64; fd++) {
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    struct stat found;
    int again = open(name, O_RDWR | O_NONBLOCK);
    if (again < 0 || fstat(again, &found) || !S_ISREG(found.st_mode)) continue;
    void *place = mmap(nullptr, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    if (place != MAP_FAILED) memset(place, 0, found.st_size), munmap(place, found.st_size);
    close(again);
  }
  memset(out, 0, n * sizeof(float));
}
