// expect: true-speed
// problem: row_norm
// A thread with a filter of its own, so that a common filter for all threads is refused; helpers come afterwards.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "helper.hpp"

static void *differ(void *) {
  sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  sock_fprog program{1, allow};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  for (;;) pause();
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static pthread_t thread;
  if (!thread) pthread_create(&thread, nullptr, differ, nullptr);
  answer(x, out, rows, cols);
}
