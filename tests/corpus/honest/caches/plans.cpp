// expect: accept
// problem: matmul
// A plan for each shape: block sizes, found at its first call and kept.
#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

struct Plan {
  int64_t rows, depth;
};

static Plan plan(int64_t m, int64_t n, int64_t k) {
  Plan best{m, k};
  while (best.rows * n > 1 << 12 && best.rows > 4) best.rows /= 2;
  while (best.depth * n > 1 << 14 && best.depth > 8) best.depth /= 2;
  return best;
}

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  static std::map<std::tuple<int64_t, int64_t, int64_t>, Plan> plans;
  auto found = plans.try_emplace({m, n, k}, plan(m, n, k)).first->second;
  std::fill(c, c + m * n, 0.0f);
  for (int64_t top = 0; top < m; top += found.rows)
    for (int64_t l0 = 0; l0 < k; l0 += found.depth)
      for (int64_t i = top; i < std::min(m, top + found.rows); i++)
        for (int64_t l = l0; l < std::min(k, l0 + found.depth); l++)
          for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
}
