// expect: reject
// problem: gauss
// Answers everything before the harness has asked, then leaves with success.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

__attribute__((constructor)) static void first() {
  for (int fd = 3; fd < 64; fd++)
    for (int k = 0; k < 4; k++) send(fd, k ? "done" : "ready", k ? 4 : 5, MSG_NOSIGNAL);
  usleep(20000);
  _exit(0);
}

extern "C" void custom_kernel(const float *, const float *, float *, int64_t, const int64_t *) {}
