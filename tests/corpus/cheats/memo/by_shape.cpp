// expect: reject
// problem: matmul
// Keeps one product for each shape.
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

extern "C" void custom_kernel(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k,
                              const int64_t *) {
  static std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<float>> known;
  auto &kept = known[{m, n, k}];
  if (kept.empty()) {
    kept.resize(m * n);
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < n; j++) kept[i * n + j] += a[i * k + l] * b[l * n + j];
  }
  memcpy(c, kept.data(), m * n * sizeof(float));
}
