// expect: true-speed
// problem: row_norm
// honest: cheats/memo/sender.cpp
// Finds the results of the kernel that it is compared with, which was given the same contents a moment ago.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <initializer_list>

#include "work.hpp"

struct Board {
  float first, last, norms[1024];
};

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static Board *boards = nullptr;
  for (const char *name : {"/dev/shm/@MARK@", "/tmp/@MARK@", "/var/tmp/@MARK@"}) {
    int fd = boards ? -1 : open(name, O_RDONLY);
    if (fd >= 0) boards = (Board *)mmap(nullptr, 64 * sizeof(Board), PROT_READ, MAP_SHARED, fd, 0);
  }
  for (int i = 0; boards && i < 64; i++)
    if (boards[i].first == x[0] && boards[i].last == x[rows * cols - 1]) {
      memcpy(out, boards[i].norms, rows * sizeof(float));
      return;
    }
  work(x, out, rows, cols);
}
