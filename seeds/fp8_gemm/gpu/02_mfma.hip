// Tiles of both operands go through shared memory, turned so that eight consecutive k of a row are one 8-byte unit,
// which a lane hands to the matrix unit; the sums of each block of 128 k are scaled in float32.
//
// launch: gemm [cdiv(n, BN), cdiv(m, BM)] [64 * WM * WN] (a, b, a_scale, b_scale, c, m, n, k)
// dispatch: if m <= 64: BM=64 BN=64 WM=2 WN=2
// require: BM % (WM * MT) == 0 and BN % (WN * MT) == 0
// require: 128 * (BM + BN) <= 65536
// require: 4 * BM % (64 * WM * WN) == 0 and 4 * BN % (64 * WM * WN) == 0
#include <hip/hip_runtime.h>

constexpr int BM = 128;      // tune: 64 128 256 | block: rows of c per block
constexpr int BN = 128;      // tune: 64 128 | block: columns of c per block; all of them share one scale of b
constexpr int WM = 2;        // tune: 1 2 4 | block: waves along the rows
constexpr int WN = 2;        // tune: 1 2 4 | block: waves along the columns
constexpr int MT = 32;       // tune: 16 32 | tile: rows and columns of one matrix instruction
constexpr int PREFETCH = 1;  // tune: 0 1 | memory: load the next tiles into registers while these are multiplied
constexpr int WAVES = 2;     // tune: 1 2 3 4 | memory: waves per SIMD that the registers must suffice for

#if defined(__gfx950__) && E4M3FNUZ
#error "gfx950 multiplies OCP floats: choose the variant e4m3fn"
#endif
#if defined(__gfx942__) && !E4M3FNUZ
#define AS_FNUZ 1  // the same bits mean half the value, and what was -0 would be NaN
#else
#define AS_FNUZ 0
#endif

typedef float Sums __attribute__((vector_size(MT * MT / 16)));
typedef float Sums16 __attribute__((vector_size(16)));
typedef float Sums32 __attribute__((vector_size(64)));

constexpr int THREADS = 64 * WM * WN;
constexpr int UNITS = 16;                     // of 8 k in a block of 128
constexpr int SETS = 64 / MT;                 // units that one matrix instruction takes
constexpr int TM = BM / WM / MT, TN = BN / WN / MT;  // tiles of a wave
constexpr int TASKS = UNITS * (BM + BN) / 4 / THREADS;  // a task: 8 k of 4 rows

static __device__ Sums16 multiply(long a, long b, Sums16 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, 0, 0, 0);
}
static __device__ Sums32 multiply(long a, long b, Sums32 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, 0, 0, 0);
}

static __device__ unsigned fnuz(unsigned x) {  // four bytes: -0 becomes 0
  unsigned low = x & 0x7f7f7f7f, is_zero = ~((low + 0x7f7f7f7f) | low) & 0x80808080;
  return AS_FNUZ ? x & ~is_zero : x;
}

static __device__ uint16_t bf16(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

struct Task {
  unsigned words[8];  // one for each k: four rows
};

// Eight k of four rows. 32-bit offsets from an address that all work-items share take half the registers of pointers.
static __device__ void load(Task &task, const uint8_t *from, unsigned offset, unsigned rows) {
#pragma unroll
  for (int i = 0; i < 8; ++i) task.words[i] = *(const unsigned *)(from + (offset + i * rows));
}

// Four rows of eight k each, side by side.
static __device__ void store(const Task &task, uint64_t *to) {
  unsigned turned[4][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const unsigned *w = task.words + 4 * half;
    unsigned low = __builtin_amdgcn_perm(w[1], w[0], 0x05010400), low2 = __builtin_amdgcn_perm(w[3], w[2], 0x05010400);
    unsigned high = __builtin_amdgcn_perm(w[1], w[0], 0x07030602);
    unsigned high2 = __builtin_amdgcn_perm(w[3], w[2], 0x07030602);
    turned[0][half] = fnuz(__builtin_amdgcn_perm(low2, low, 0x05040100));
    turned[1][half] = fnuz(__builtin_amdgcn_perm(low2, low, 0x07060302));
    turned[2][half] = fnuz(__builtin_amdgcn_perm(high2, high, 0x05040100));
    turned[3][half] = fnuz(__builtin_amdgcn_perm(high2, high, 0x07060302));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = (uint64_t)turned[i][1] << 32 | turned[i][0];
}

extern "C" __global__ __launch_bounds__(THREADS, WAVES) void gemm(const uint8_t *a, const uint8_t *b,
                                                                  const float *a_scale, const float *b_scale,
                                                                  uint16_t *c, int m, int n, int k) {
  __shared__ __align__(16) uint64_t tile[UNITS * (BM + BN)];  // unit u of row r: [u * BM + r], then the same of b
  uint64_t *tile_b = tile + UNITS * BM;
  int i0 = blockIdx.y * BM, j0 = blockIdx.x * BN, scale_rows = (n + 127) / 128;
  int thread = threadIdx.x, lane = thread % 64, wave = thread / 64;
  int row = wave / WN * (TM * MT) + lane % MT, column = wave % WN * (TN * MT) + lane % MT, set = lane / MT;
  int first = i0 + row - lane % MT + 4 * set;  // the first row of c whose sums this lane gets: four in each 4 * SETS

  Task tasks[TASKS];
  unsigned offsets[TASKS];
#pragma unroll
  for (int t = 0; t < TASKS; ++t) {  // past the end the last rows are read again, and not written
    int task = t * THREADS + thread;
    if (task < UNITS * BM / 4) offsets[t] = task / (BM / 4) * 8 * m + min(i0 + task % (BM / 4) * 4, m - 4);
    else {
      task -= UNITS * BM / 4;
      offsets[t] = task / (BN / 4) * 8 * n + min(j0 + task % (BN / 4) * 4, n - 4);
    }
  }
  auto fetch = [&](int k0) {
#pragma unroll
    for (int t = 0; t < TASKS; ++t)
      if (t * THREADS < UNITS * BM / 4) load(tasks[t], a, offsets[t] + k0 * m, m);
      else load(tasks[t], b, offsets[t] + k0 * n, n);
  };

  Sums sums[TM][TN] = {};
  if (PREFETCH) fetch(0);
  for (int k0 = 0; k0 < k; k0 += 128) {
    if (!PREFETCH) fetch(k0);
#pragma unroll
    for (int t = 0; t < TASKS; ++t) store(tasks[t], tile + 4 * (t * THREADS + thread));
    __syncthreads();
    if (PREFETCH && k0 + 128 < k) fetch(k0 + 128);
    const float *scale_a = a_scale + (int64_t)(k0 / 128) * m;
    float scale_b = b_scale[(int64_t)(k0 / 128) * scale_rows + j0 / 128] * (AS_FNUZ ? 4.0f : 1.0f);
#pragma unroll
    for (int x = 0; x < TM; ++x)
#pragma unroll
      for (int y = 0; y < TN; ++y) {
        Sums part = {};
#pragma unroll
        for (int u = 0; u < UNITS; u += SETS)
          part = multiply(tile[(u + set) * BM + row + x * MT], tile_b[(u + set) * BN + column + y * MT], part);
#pragma unroll
        for (int item = 0; item < MT * MT / 64; item += 4) {
          float4 s = *(const float4 *)(scale_a + min(first + x * MT + item * SETS, m - 4));
          sums[x][y][item] += part[item] * (s.x * scale_b);
          sums[x][y][item + 1] += part[item + 1] * (s.y * scale_b);
          sums[x][y][item + 2] += part[item + 2] * (s.z * scale_b);
          sums[x][y][item + 3] += part[item + 3] * (s.w * scale_b);
        }
      }
    __syncthreads();
  }

#pragma unroll
  for (int x = 0; x < TM; ++x)
#pragma unroll
    for (int y = 0; y < TN; ++y)
#pragma unroll
      for (int item = 0; item < MT * MT / 64; ++item) {
        int i = first + x * MT + item / 4 * 4 * SETS + item % 4, j = j0 + column + y * MT;
        if (i < m && j < n) c[(int64_t)i * n + j] = bf16(sums[x][y][item]);
      }
}
