// Planes stream along d through shared memory; a thread has all taps, and a strip of one row for kd depths, in registers.
// launch: planes [n * c, cdiv(h, TH), cdiv(w, TW)] [TH * (TW // STRIP)] (x, f, y, c, d, h, w) if kd == KD and kh == KH and kw == KW
// launch: naive [cdiv(n * c * (d - kd + 1) * h * w, 256)] [256] (x, f, y, n, c, d, h, w, kd, kh, kw) if kd != KD or kh != KH or kw != KW
// require: TW % STRIP == 0 and TH * (TW // STRIP) <= 1024
// dispatch: if kd == 3 and kh == 3 and kw == 3: KH=3 KW=3
// dispatch: if kd == 3 and kh == 5 and kw == 5 and h == 45 and w == 80: TH=45 BLOCKS=1
// dispatch: if kd == 3 and kh == 5 and kw == 5 and w <= 64: TH=32 TW=64
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int KD = 3;     // taps along d, h and w
constexpr int KH = 5;
constexpr int KW = 5;
constexpr int TH = 23;    // tune: 9 12 15 23 32 45 | tile: rows of a block
constexpr int TW = 80;    // tune: 16 32 64 80 | tile: columns of a block
constexpr int STRIP = 8;  // tune: 4 8 | tile: columns of a thread
constexpr int BLOCKS = 2; // tune: 1 2 3 4 | memory: blocks of a multiprocessor at least, which bounds registers

#if SIZE == 4
typedef float element;
#elif HALF
typedef __half element;
#else
typedef __nv_bfloat16 element;
#endif

constexpr int THREADS = TH * (TW / STRIP), PITCH = (TW + KW + 2) / 4 * 4, ROWS = TH + KH - 1;
constexpr int LOADS = (ROWS * PITCH + THREADS - 1) / THREADS, WINDOW = (STRIP + KW + 2) / 4 * 4;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    planes(const element *x, const element *f, element *y, int c, int d, int h, int w) {
  __shared__ __align__(16) float tile[2][ROWS * PITCH];
  const int top = blockIdx.y * TH, left = blockIdx.z * TW, row = threadIdx.x / (TW / STRIP), column = threadIdx.x % (TW / STRIP) * STRIP;
  const long p = blockIdx.x;
  const element *in = x + p * d * h * w;
  float taps[KD][KH][KW], sum[KD][STRIP] = {};
  for (int i = 0; i < KD * KH * KW; ++i) (&taps[0][0][0])[i] = float(f[p % c * (KD * KH * KW) + i]);
  int from[LOADS];  // of what this thread brings of every plane: where it is there, below 0 for padding
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    int at = threadIdx.x + i * THREADS, r = at / PITCH + top - KH / 2, q = at % PITCH + left - KW / 2;
    from[i] = at < ROWS * PITCH && r >= 0 && r < h && q >= 0 && q < w ? r * w + q : -1;
  }
#if SIZE == 4
  auto fetch = [&](int z) {  // straight into shared memory, zeros for padding
    const element *plane = in + (long)z * h * w;
    const unsigned to = (unsigned)__cvta_generic_to_shared(tile[z & 1]) + 4 * threadIdx.x;
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (threadIdx.x + i * THREADS < ROWS * PITCH)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + 4 * i * THREADS), "l"(plane + max(from[i], 0)),
                     "r"(from[i] >= 0 ? 4 : 0));
    asm volatile("cp.async.commit_group;");
  };
  auto arrive = [&](int) { asm volatile("cp.async.wait_group 0;" ::: "memory"); };
#else
  float next[LOADS];
  auto fetch = [&](int z) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) next[i] = from[i] >= 0 ? float(in[(long)z * h * w + from[i]]) : 0.0f;
  };
  auto arrive = [&](int z) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      if (threadIdx.x + i * THREADS < ROWS * PITCH) tile[z & 1][threadIdx.x + i * THREADS] = next[i];
  };
#endif
  fetch(0);
  for (int start = 0; start < d; start += KD)
#pragma unroll
    for (int phase = 0; phase < KD; ++phase) {
      const int z = start + phase;
      if (z >= d) break;
      const float *now = tile[z & 1];
      arrive(z);
      __syncthreads();
      if (z + 1 < d) fetch(z + 1);
#pragma unroll
      for (int j = 0; j < KH; ++j) {
        float window[WINDOW];
#pragma unroll
        for (int k = 0; k < WINDOW; k += 4)
          *reinterpret_cast<float4 *>(window + k) = *reinterpret_cast<const float4 *>(now + (row + j) * PITCH + column + k);
#pragma unroll
        for (int i = 0; i < KD; ++i)
#pragma unroll
          for (int k = 0; k < KW; ++k)
#pragma unroll
            for (int s = 0; s < STRIP; ++s) sum[(phase + KD - i) % KD][s] += window[s + k] * taps[i][j][k];
      }
      float *done = sum[(phase + 1) % KD];
      const int depth = z - KD + 1, r = top + row, q = left + column;
      if (depth >= 0 && r < h) {
        element *out = y + ((p * (d - KD + 1) + depth) * h + r) * w + q;
        if (SIZE == 4 && w % 4 == 0 && q + STRIP <= w) {
#pragma unroll
          for (int s = 0; s < STRIP; s += 4)
            *reinterpret_cast<float4 *>(out + s) = make_float4(done[s], done[s + 1], done[s + 2], done[s + 3]);
        } else {
#pragma unroll
          for (int s = 0; s < STRIP; ++s)
            if (q + s < w) out[s] = element(done[s]);
        }
      }
#pragma unroll
      for (int s = 0; s < STRIP; ++s) done[s] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    naive(const element *x, const element *f, element *y, int n, int c, int d, int h, int w, int kd, int kh, int kw) {
  long at = (long)blockIdx.x * 256 + threadIdx.x;
  int depth = d - kd + 1;
  if (at >= (long)n * c * depth * h * w) return;
  int q = at % w, r = at / w % h, z = at / w / h % depth;
  long p = at / w / h / depth;
  const element *taps = f + p % c * kd * kh * kw;
  float sum = 0;
  for (int i = 0; i < kd; ++i)
    for (int j = 0; j < kh; ++j)
      for (int k = 0; k < kw; ++k) {
        int row = r + j - kh / 2, column = q + k - kw / 2;
        if (row < 0 || row >= h || column < 0 || column >= w) continue;
        sum += float(x[((p * d + z + i) * h + row) * w + column]) * float(taps[(i * kh + j) * kw + k]);
      }
  y[at] = element(sum);
}
