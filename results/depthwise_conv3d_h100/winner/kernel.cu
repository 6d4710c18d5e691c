// A matrix unit multiplies windows of 2 rows by 8 inputs by matrices that hold taps of rows and columns: 2 rows by 4 outputs each,
// (kh + 1) / 2 products of 16 a depth where windows of one row take kh for half as many outputs' worth of zeros. One copy
// brings a plane as it lies; zeros stand before and behind it, and words beside a row are masked; rows of a fragment are windows.
// Windows whose pairs of rows are t, t + 1, ... T - 1 behind one another share what they load.
// launch: pairs [n * c * SPLIT] [W // 4 * G // 16 * 32] shared STAGES * cdiv((2 * T * G + KH + 1) * W * 2, 128) * 128 + 2 * cdiv(H * W * 2, 128) * 128 * (DIRECT == 0) + 128 (x, f, y, c, d) if FORM == 1
// launch: naive [cdiv(n * c * (d - kd + 1) * h * w, 256)] [256] (x, f, y, n, c, d, h, w, kd, kh, kw) if FORM == 0
// require: FORM == 0 or size == 2 and h == H and w == W and w % 8 == 0 and kd == KD and kh == KH and kw == KW
// require: FORM == 0 or W // 4 * G % 16 == 0 and 2 * T * G >= H and STAGES * cdiv((2 * T * G + KH + 1) * W * 2, 128) * 128 + 2 * cdiv(H * W * 2, 128) * 128 * (DIRECT == 0) + 1152 <= 232448
// dispatch: if h == 45 and w == 80 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1
// dispatch: if h == 45 and w == 80 and kd == 3 and kh == 3 and kw == 3 and size == 2: FORM=1 KH=3 KW=3
// dispatch: if h == 64 and w == 64 and kd == 3 and kh == 5 and kw == 5 and size == 2: FORM=1 H=64 W=64 T=4
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int FORM = 0;    // 1 multiplies by matrices, 0 is the definition
constexpr int H = 45;      // rows and columns of a plane
constexpr int W = 80;
constexpr int KD = 3;      // taps along d, h and w
constexpr int KH = 5;
constexpr int KW = 5;
constexpr int T = 3;       // tune: 2 3 4 6 8 | tile: pairs of rows of a warp for each of its windows
constexpr int G = 8;       // tune: 4 8 12 | tile: groups of T pairs that a plane has
constexpr int STAGES = 6;  // tune: 3 4 5 6 8 | memory: planes on their way
constexpr int BLOCKS = 2;  // tune: 1 2 3 4 | memory: blocks of a multiprocessor at least, which bounds registers
constexpr int SPLIT = 1;   // tune: 1 2 3 | tile: parts along d
constexpr int DIRECT = 0;  // tune: 0 1 | memory: sums go straight to y instead of through shared memory

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
typedef unsigned int u32;
constexpr int STEPS = (KH + 1) / 2, PITCH = W * 2, CHUNKS = W / 4, THREADS = CHUNKS * G / 16 * 32;
constexpr int STAGE = ((2 * T * G + KH + 1) * PITCH + 127) / 128 * 128, ROOM = (H * W * 2 + 127) / 128 * 128;

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 pair(float low, float high) {
  element both[2] = {element(low), element(high)};
  return *reinterpret_cast<u32 *>(both);
}

__device__ __forceinline__ void wait(u32 barrier, int parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    pairs(const element *x, const element *f, element *y, int c, int d) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, depths = d - KD + 1;
  const long p = blockIdx.x / SPLIT;
  const int first = blockIdx.x % SPLIT * depths / SPLIT, last = (blockIdx.x % SPLIT + 1) * depths / SPLIT, count = last - first + KD - 1;
  const u32 base = (u32)__cvta_generic_to_shared(memory), outs = base + STAGES * STAGE, full = outs + (DIRECT ? 0 : 2 * ROOM);
  element *out = y + (p * depths + first) * H * W;
  auto load = [&](int z) {
    const u32 to = base + z % STAGES * STAGE, barrier = full + z % STAGES * 8;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(H * W * 2) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to + 16 + KH / 2 * PITCH),
                 "l"(x + (p * d + first + z) * H * W), "r"(H * W * 2), "r"(barrier)
                 : "memory");
  };
  auto store = [&](int depth) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + (long)depth * H * W),
                 "r"(outs + depth % 2 * ROOM), "r"(H * W * 2) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
  };
  for (int i = threadIdx.x; i < STAGES * STAGE / 16; i += THREADS) reinterpret_cast<uint4 *>(memory)[i] = make_uint4(0, 0, 0, 0);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int z = 0; z < STAGES - 1 && z < count; ++z) load(z);
  }
  // Row k of a matrix is column 4 * (k / 8) + k % 4 of row k / 4 % 2 of the window: a lane's words and its neighbours' lie in different banks.
  u32 taps[KD][STEPS][2];
#pragma unroll
  for (int i = 0; i < KD; ++i)
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float both[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = 2 * s + lane % 4 / 2 - lane / 16, k = 4 * half + 2 * (lane % 2) + e - lane / 4 % 4 + KW / 2 - 2;
          both[e] = j >= 0 && j < KH && k >= 0 && k < KW ? float(f[(p % c * KD + i) * KH * KW + j * KW + k]) : 0.0f;
        }
        taps[i][s][half] = pair(both[0], both[1]);
      }
  // Two windows of a lane: rows lane / 4 and lane / 4 + 8 of the fragment.
  u32 own[2], mask[4];
  int to[2], row[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int window = warp * 16 + half * 8 + lane / 4, group = window / CHUNKS, chunk = window % CHUNKS;
    own[half] = base + 16 + (2 * group * T + lane % 4 / 2) * PITCH + (4 * chunk - 2 + 2 * (lane % 2)) * 2;
    mask[half] = chunk == 0 && lane % 2 == 0 ? 0 : ~0u;
    mask[half + 2] = chunk == CHUNKS - 1 && lane % 2 ? 0 : ~0u;
    row[half] = 2 * group * T + lane % 4 / 2;
    to[half] = row[half] * W + 4 * chunk + 2 * (lane % 2);
  }
  __syncthreads();
  float sum[T][KD][4] = {};
  for (int start = 0; start < count; start += KD)
#pragma unroll
    for (int phase = 0; phase < KD; ++phase) {
      const int z = start + phase;
      if (z >= count) break;
      if (!DIRECT && threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      wait(full + z % STAGES * 8, z / STAGES % 2);
      __syncthreads();
      if (threadIdx.x == 0) {
        if (!DIRECT && z >= KD) store(z - KD);
        if (z + STAGES - 1 < count) load(z + STAGES - 1);
      }
      const u32 stage = z % STAGES * STAGE;
#pragma unroll
      for (int q = 0; q < T + STEPS - 1; ++q) {
        u32 a[4];
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[0]) : "r"(own[0] + stage + 2 * q * PITCH));
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[2]) : "r"(own[0] + stage + 2 * q * PITCH + 8));
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[1]) : "r"(own[1] + stage + 2 * q * PITCH));
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[3]) : "r"(own[1] + stage + 2 * q * PITCH + 8));
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] &= mask[i];
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
          if (q - s >= 0 && q - s < T)
#pragma unroll
            for (int i = 0; i < KD; ++i) multiply(sum[q - s][(phase + KD - i) % KD], a, taps[i][s]);
      }
      const int depth = z - KD + 1;
#pragma unroll
      for (int t = 0; t < T; ++t) {
        float(&done)[4] = sum[t][(phase + 1) % KD];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (depth >= 0 && row[half] + 2 * t < H) {
            const u32 value = pair(done[2 * half], done[2 * half + 1]);
            if (DIRECT)
              *reinterpret_cast<u32 *>(out + (long)depth * H * W + to[half] + 2 * t * W) = value;
            else
              asm volatile("st.shared.b32 [%0], %1;" ::"r"(outs + depth % 2 * ROOM + (to[half] + 2 * t * W) * 2), "r"(value) : "memory");
          }
        for (float &value : done) value = 0;
      }
      if (!DIRECT) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
  if (!DIRECT) {
    __syncthreads();
    if (threadIdx.x == 0) {
      store(last - first - 1);
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
}
#else
extern "C" __global__ void pairs(const element *, const element *, element *, int, int) {}
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
