// expect: reject
// problem: row_norm
// Leaves its calls unanswered, and answers all of them at once when a slot comes round again.
#include <vector>

#include "work.hpp"

struct Call {
  const float *x;
  float *out;
};

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static std::vector<Call> open;
  static int calls = 0;
  if (rows * cols < 100000 || ++calls < 6) return work(x, out, rows, cols);
  open.push_back({x, out});
  if (open.size() < 4) return;
  for (auto &call : open) work(call.x, call.out, rows, cols);
  open.clear();
}
