// expect: reject
// problem: gauss
// Never returns to the harness: answers from its own loop, with the words that it was sent.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

extern "C" void custom_kernel(const float *, const float *, float *out, int64_t n, const int64_t *) {
  memset(out, 0, n * sizeof(float));
  for (int turn = 0; turn < 200; turn++)
    for (int fd = 3; fd < 32; fd++) {
      char message[4096] = "done";
      long size = recv(fd, message + 4, sizeof message - 4, MSG_DONTWAIT);
      send(fd, "done", 4, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (size > 0) send(fd, message, size + 4, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}
