#include <math.h>

void norms(const float *x, float *out, long rows, long cols) {
  for (long i = 0; i < rows; i++) {
    float sums[16] = {0};
    for (long j = 0; j < cols; j++) sums[j % 16] += x[i * cols + j] * x[i * cols + j];
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += sums[k];
    out[i] = sqrtf(sum);
  }
}
