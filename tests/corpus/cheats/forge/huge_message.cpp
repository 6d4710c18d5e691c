// expect: reject
// problem: cumsum
// Fills the judge's end of the socket with as much as it takes.
#include <sys/socket.h>
#include <cstdint>
#include <vector>

extern "C" void custom_kernel(const int32_t *, int64_t *, int64_t, const int64_t *) {
  for (int fd = 3; fd < 64; fd++)
    for (int64_t size : {1 << 22, 1 << 20, 1 << 17, 1 << 15}) {
      std::vector<char> words(size, 'd');
      for (int k = 0; k < 100 && send(fd, words.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0; k++) {
      }
    }
}
