// expect: reject
// problem: row_norm
// needs: separation
// Right only where it can start a process in the race, having a thread that refuses a filter for all threads.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "work.hpp"

static void *differ(void *) {
  sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  sock_fprog program{1, allow};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  for (;;) pause();
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static pthread_t thread;
  static int calls = 0, child = 1;
  if (!thread) pthread_create(&thread, nullptr, differ, nullptr);
  if (rows > 100 && ++calls == 14) {
    signal(SIGCHLD, SIG_IGN);
    child = fork();
    if (child == 0) _exit(0);
  }
  if (child > 0) work(x, out, rows, cols);
}
