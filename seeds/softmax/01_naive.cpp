// The definition, three passes over each row with the library's scalar exp.
extern "C" float expf(float);

constexpr int FUSE = 0;    // tune: 0 1 | fuse: add up the exponentials in the pass that makes them
constexpr int RECIP = 0;   // tune: 0 1 | precision: one reciprocal for each row instead of a division for each element
constexpr int UNROLL = 1;  // tune: 1 2 4 8 | unroll: independent partial maxima and sums
// flags: -fopenmp if NUM_THREADS > 1

extern "C" void custom_kernel(const float *x, float *y, long rows, long cols, const long *strides) {
#if NUM_THREADS > 1
#pragma omp parallel for num_threads(NUM_THREADS) schedule(static)
#endif
  for (long i = 0; i < rows; ++i) {
    const float *xr = x + i * strides[0];
    float *yr = y + i * strides[2];
    long xs = strides[1], ys = strides[3], even = cols / UNROLL * UNROLL;
    float top[UNROLL], sum[UNROLL] = {};
    for (float &t : top) t = xr[0];
    for (long j = 0; j < even; j += UNROLL)
      for (int u = 0; u < UNROLL; ++u) top[u] = xr[(j + u) * xs] > top[u] ? xr[(j + u) * xs] : top[u];
    for (long j = even; j < cols; ++j) top[0] = xr[j * xs] > top[0] ? xr[j * xs] : top[0];
    for (float t : top) top[0] = t > top[0] ? t : top[0];
    for (long j = 0; j < cols; ++j) {
      yr[j * ys] = expf(xr[j * xs] - top[0]);
      if (FUSE) sum[j % UNROLL] += yr[j * ys];
    }
    for (long j = 0; !FUSE && j < cols; ++j) sum[j % UNROLL] += yr[j * ys];
    for (int u = 1; u < UNROLL; ++u) sum[0] += sum[u];
    float r = 1 / sum[0];
    for (long j = 0; j < cols; ++j) yr[j * ys] = RECIP ? yr[j * ys] * r : yr[j * ys] / sum[0];
  }
}
