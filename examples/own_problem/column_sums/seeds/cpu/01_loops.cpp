// Two loops and what may be changed in them: each `tune:` line says which values the constant above it can take.
enum { columns, rows };
constexpr int OUTER = columns;  // tune: columns rows | form: which loop is outside
constexpr int BLOCK = 32;       // tune: 32 128 512 | block: columns whose sums are kept at hand
constexpr int UNROLL = 1;       // tune: 1 2 4 | unroll: rows at a time

extern "C" void custom_kernel(const float *x, float *y, long m, long n, const long *) {
  for (long j = 0; j < n; j++) y[j] = 0;
  if (OUTER == columns) {
    for (long j = 0; j < n; j++)
      for (long i = 0; i < m; i++) y[j] += x[i * n + j];
    return;
  }
  for (long first = 0; first < n; first += BLOCK) {
    long last = first + BLOCK < n ? first + BLOCK : n, i = 0;
    for (; i + UNROLL <= m; i += UNROLL)
      for (long j = first; j < last; j++) {
        float sum = 0;
        for (int u = 0; u < UNROLL; u++) sum += x[(i + u) * n + j];
        y[j] += sum;
      }
    for (; i < m; i++)
      for (long j = first; j < last; j++) y[j] += x[i * n + j];
  }
}
