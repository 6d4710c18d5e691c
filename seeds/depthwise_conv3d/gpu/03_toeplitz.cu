// A matrix unit multiplies windows of 16 inputs along w by a banded matrix that holds the taps of one row: 8 outputs each.
// Planes stream along d through shared memory. Row m of a fragment is row HT * m + s of the plane, so that the fragment of one s
// serves each of the HT tiles whose row, minus s, is a tap; and every fragment counts for KD depths, whose sums stay in registers.
// Windows begin at multiples of 8 and outputs 2 behind them; the last window of a row goes on at its beginning.
// launch: toeplitz [n * c] [w // 8 * 32] shared STAGES * cdiv(((16 * HT + KH - 1) * (w // 8) + (16 * HT + KH - 1) // HT + 1) * 16, 128) * 128 + 2 * cdiv(h * w * 2, 128) * 128 (x, f, y, c, d, h, w) if FORM == 1
// launch: naive [cdiv(n * c * (d - kd + 1) * h * w, 256)] [256] (x, f, y, n, c, d, h, w, kd, kh, kw) if FORM == 0
// require: FORM == 0 or size == 2 and w % 8 == 0 and w >= 16 and w <= 128 and h <= 16 * HT and kd == KD and kh == KH and kw == KW and (H == 0 or H == h and W == w)
// dispatch: if h == 45 and w == 80 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1 H=45 W=80
// dispatch: if h == 45 and w == 80 and kd == 3 and kh == 3 and kw == 3 and size == 2: FORM=1 H=45 W=80 KH=3 KW=3
// dispatch: if h == 64 and w == 64 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1 H=64 W=64 HT=4
// dispatch: if w % 8 == 0 and w >= 16 and w <= 128 and h <= 48 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1
// dispatch: if w % 8 == 0 and w >= 16 and w <= 128 and h <= 64 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1 HT=4
// dispatch: if w % 8 == 0 and w >= 16 and w <= 128 and h <= 48 and kd == 3 and kh == 3 and kw == 3 and size == 2: FORM=1 KH=3 KW=3
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int FORM = 0;    // 1 multiplies by matrices, 0 is the definition
constexpr int H = 0;       // rows and columns of a plane where they are known, which saves registers
constexpr int W = 0;
constexpr int KD = 3;      // taps along d, h and w
constexpr int KH = 5;
constexpr int KW = 5;
constexpr int HT = 3;      // tiles of 16 rows
constexpr int STAGES = 4;  // tune: 3 4 5 6 8 | memory: planes on their way
constexpr int BLOCKS = 2;  // tune: 1 2 3 | memory: blocks of a multiprocessor at least, which bounds registers

#if SIZE == 4
typedef float element;
#elif HALF
typedef __half element;
#define KIND "f16"
#else
typedef __nv_bfloat16 element;
#define KIND "bf16"
#endif

#if SIZE == 2
constexpr int SHIFT = 2, ROWS = 16 * HT + KH - 1, LOADS = (16 * HT + 31) / 32;
typedef unsigned int u32;

__device__ __forceinline__ void fragment(u32 (&a)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from));
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 pair(float low, float high) {
  element both[2] = {element(low), element(high)};
  return *reinterpret_cast<u32 *>(both);
}

extern "C" __global__ void __launch_bounds__(W ? W / 8 * 32 : 512, W ? BLOCKS : 1)
    toeplitz(const element *x, const element *f, element *y, int c, int d, int height, int width) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int h = H ? H : height, w = W ? W : width, chunks = w / 8, threads = chunks * 32, depths = d - KD + 1;
  // 16 bytes more after every HT rows: those of one fragment lie in different banks.
  const int stage = ((ROWS * chunks + ROWS / HT + 1) * 16 + 127) / 128 * 128, room = (h * w * 2 + 127) / 128 * 128;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long p = blockIdx.x;
  const element *in = x + p * d * h * w;
  element *out = y + p * depths * h * w;
  const u32 base = (u32)__cvta_generic_to_shared(memory), outs = base + STAGES * stage;
  for (int i = threadIdx.x; i < STAGES * stage / 16; i += threads) reinterpret_cast<uint4 *>(memory)[i] = make_uint4(0, 0, 0, 0);

  u32 band[KD][KH][2];
  const element *taps = f + p % c * (KD * KH * KW);
#pragma unroll
  for (int i = 0; i < KD * KH; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float both[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        int k = 2 * (lane % 4) + e + 8 * half, column = lane / 4, tap = k - SHIFT - column + KW / 2;
        bool here = warp < chunks - 1 || (k < 8) == (column < 8 - SHIFT);
        both[e] = tap >= 0 && tap < KW && here ? float(taps[i * KW + tap]) : 0.0f;
      }
      band[i / KH][i % KH][half] = pair(both[0], both[1]);
    }

  auto load = [&](int z) {
    if (z < d) {
      const u32 to = base + z % STAGES * stage;
#pragma unroll
      for (int i = 0; i < LOADS; ++i) {
        int at = threadIdx.x + i * threads, row = at / chunks + KH / 2;
        if (at < h * chunks)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (row * chunks + row / HT + at % chunks) * 16),
                       "l"(in + (long)z * h * w + at * 8));
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  auto store = [&](int depth) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + (long)depth * h * w),
                 "r"(outs + depth % 2 * room), "r"(h * w * 2) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
  };

  __syncthreads();
  for (int z = 0; z < STAGES - 1; ++z) load(z);
  const u32 own = (lane % 16 * (HT * chunks + 1) + (warp + lane / 16) % chunks) * 16;
  const int column = (8 * warp + SHIFT + 2 * (lane % 4)) % w;
  float sum[HT][KD][4] = {};
  for (int start = 0; start < d; start += KD)
#pragma unroll
    for (int phase = 0; phase < KD; ++phase) {
      const int z = start + phase;
      if (z >= d) break;
      asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
      if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;");
      __syncthreads();
      if (threadIdx.x == 0 && z >= KD) store(z - KD);
      load(z + STAGES - 1);
      const u32 from = base + z % STAGES * stage + own;
#pragma unroll
      for (int s = 0; s < HT + KH - 1; ++s) {
        u32 a[4];
        fragment(a, from + (s * chunks + s / HT) * 16);
#pragma unroll
        for (int t = 0; t < HT; ++t)
          if (s - t >= 0 && s - t < KH)
#pragma unroll
            for (int i = 0; i < KD; ++i) multiply(sum[t][(phase + KD - i) % KD], a, band[i][s - t]);
      }
      const int depth = z - KD + 1;
#pragma unroll
      for (int t = 0; t < HT; ++t) {
        float(&done)[4] = sum[t][(phase + 1) % KD];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int row = HT * (lane / 4 + 8 * half) + t;
          if (depth >= 0 && row < h)
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(outs + depth % 2 * room + (row * w + column) * 2),
                         "r"(pair(done[2 * half], done[2 * half + 1])) : "memory");
        }
        for (float &value : done) value = 0;
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
  __syncthreads();
  if (threadIdx.x == 0) {
    store(depths - 1);
    asm volatile("cp.async.bulk.wait_group 0;");
  }
}
#else
extern "C" __global__ void toeplitz(const element *, const element *, element *, int, int, int, int) {}
#endif

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
