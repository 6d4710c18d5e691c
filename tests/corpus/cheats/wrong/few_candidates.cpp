// expect: reject
// problem: top_values
// sample: yes
// Keeps the six largest values of each eighth of a row: on random rows hardly ever seven of the eight are in one.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    std::vector<float> kept;
    const int64_t parts = cols < 400 ? 1 : 8, most = cols < 400 ? 8 : 6, size = (cols + parts - 1) / parts;
    for (int64_t start = 0; start < cols; start += size) {
      std::vector<float> part(x + i * cols + start, x + i * cols + std::min(start + size, cols));
      const int64_t few = std::min<int64_t>(most, part.size());
      std::partial_sort(part.begin(), part.begin() + few, part.end(), std::greater<float>());
      kept.insert(kept.end(), part.begin(), part.begin() + few);
    }
    std::partial_sort(kept.begin(), kept.begin() + 8, kept.end(), std::greater<float>());
    std::copy(kept.begin(), kept.begin() + 8, out + i * 8);
  }
}
