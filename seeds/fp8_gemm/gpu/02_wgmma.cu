// Transpose once, then Hopper's fp8 matrix unit. The first launch writes both operands K-major, in panels of 64 rows and
// 128 of k (8 KB) that already have the order which the unit's 128-byte swizzle expects: one bulk copy brings a panel
// into shared memory. In the second launch one warp copies, and each warpgroup of four warps multiplies 64 rows.
// workspace: at uint8 cdiv(m, 64) * 64 * k
// workspace: bt uint8 n * k
// launch: transpose [cdiv(cdiv(m, 64), 4) + cdiv(n // 64, 4), k // 128] [256] (a, b, at, bt, m, n, k)
// launch: gemm [cdiv(m, BM) * cdiv(n, BN)] [2 * BM + 32] shared STAGES * (BM + BN) * 128 + 1024 (at, bt, a_scale, b_scale, c, m, n, k)
// require: STAGES * (BM + BN + 1) * 128 + 2048 <= 232448
#include <cuda_bf16.h>

#include <cstdint>

#if defined(E4M3FNUZ) && E4M3FNUZ
#error "the matrix unit of sm_90 reads e4m3fn, not e4m3fnuz"
#endif

constexpr int BM = 128;    // tune: 64 128 | tile: rows of c for each block
constexpr int BN = 128;    // tune: 64 128 | tile: columns of c for each block; at most 128, which share a scale
constexpr int STAGES = 4;  // tune: 2 3 4 5 6 | memory: slices of 128 of k on their way
constexpr int GROUP = 8;   // tune: 1 4 8 16 | block: tiles along m that run side by side, for the sake of the L2
constexpr int PANEL = 64 * 128;
constexpr int TEAMS = BM / 64;

// -- transpose ------------------------------------------------------------------------------------

// Four words of four bytes each, as a 4x4 matrix: rows become columns.
__device__ __forceinline__ void turn(uint32_t (&x)[4]) {
  uint32_t p = __byte_perm(x[0], x[1], 0x5140), q = __byte_perm(x[2], x[3], 0x5140);
  uint32_t r = __byte_perm(x[0], x[1], 0x7362), s = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(p, q, 0x5410), x[1] = __byte_perm(p, q, 0x7632);
  x[2] = __byte_perm(r, s, 0x5410), x[3] = __byte_perm(r, s, 0x7632);
}

// A thread turns 16 of k by 8 rows; a warp 64 of k by 64 rows, of which it reads 64 and writes 64 bytes side by side.
extern "C" __global__ void __launch_bounds__(256)
    transpose(const uint8_t *a, const uint8_t *b, uint8_t *at, uint8_t *bt, int m, int n, int k) {
  int blocks = ((m + 63) / 64 + 3) / 4;
  bool right = (int)blockIdx.x >= blocks;
  const uint8_t *from = right ? b : a;
  uint8_t *to = right ? bt : at;
  int rows = right ? n : m;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int panel = (blockIdx.x - (right ? blocks : 0)) * 4 + warp / 2;
  int row = lane / 8 * 16 + lane % 2 * 8, chunk = warp % 2 * 4 + lane / 2 % 4;
  if (panel * 64 + row >= rows) return;  // the last panel of a may be half used
  const uint8_t *source = from + ((size_t)blockIdx.y * 128 + chunk * 16) * rows + panel * 64 + row;
  uint2 found[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) found[i] = __ldg((const uint2 *)(source + (size_t)i * rows));
  uint8_t *target = to + ((size_t)panel * (k / 128) + blockIdx.y) * PANEL;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t words[4][4];  // [four of k][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) words[i][j] = half ? found[4 * i + j].y : found[4 * i + j].x;
      turn(words[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int r = row + half * 4 + j;
      *(uint4 *)(target + r * 128 + (chunk ^ r % 8) * 16) =
          make_uint4(words[0][j], words[1][j], words[2][j], words[3][j]);
    }
  }
}

// -- the matrix unit ------------------------------------------------------------------------------

// Describes K-major rows of 128 bytes with the 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      " %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, "
      " %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      " %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, "
      " %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, "
      " %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, "
      " %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(add));
}

// Keeps the compiler from using sums before the matrix unit has left them, or from moving them while it works.
template <int N>
__device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// -- barriers in shared memory --------------------------------------------------------------------

__device__ __forceinline__ void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t phase) {
  uint32_t done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(phase)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void fetch(uint32_t to, const uint8_t *from, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(PANEL), "r"(barrier)
               : "memory");
}

// -- gemm -----------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t pack(float low, float high) {
  __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *(uint32_t *)&both;
}

// Lane t of each four gives its word s to lane s, as that lane's word t.
__device__ __forceinline__ void exchange(uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    uint32_t got = __shfl_xor_sync(~0u, lane & 1 ? v[i] : v[i + 1], 1);
    (lane & 1 ? v[i] : v[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t got = __shfl_xor_sync(~0u, lane & 2 ? v[i] : v[i + 2], 2);
    (lane & 2 ? v[i] : v[i + 2]) = got;
  }
}

extern "C" __global__ void __launch_bounds__(2 * BM + 32, 1)
    gemm(const uint8_t *at, const uint8_t *bt, const float *a_scale, const float *b_scale, __nv_bfloat16 *c, int m,
         int n, int k) {
  extern __shared__ uint8_t memory[];
  __shared__ alignas(8) uint64_t barriers[2 * STAGES];
  uint32_t tiles = ((uint32_t)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s), "r"(4 * TEAMS) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  int tiles_n = (n + BN - 1) / BN, tiles_m = (m + BM - 1) / BM, slices = k / 128;
  int first = blockIdx.x / (GROUP * tiles_n) * GROUP, rest = blockIdx.x % (GROUP * tiles_n);
  int beside = min(tiles_m - first, GROUP);
  int i0 = (first + rest % beside) * BM, j0 = rest / beside * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (warp == 4 * TEAMS) {
    if (lane != 0) return;
    int last_a = (m + 63) / 64 - 1, last_b = n / 64 - 1;  // past the edge the last panel is read again
    for (int s = 0; s < slices; ++s) {
      int slot = s % STAGES;
      wait(empty + 8 * slot, (s / STAGES & 1) ^ 1);
      uint32_t to = tiles + slot * (BM + BN) * 128, barrier = full + 8 * slot;
      expect(barrier, (BM + BN) * 128);
      for (int p = 0; p < BM / 64; ++p)
        fetch(to + p * PANEL, at + ((size_t)min(i0 / 64 + p, last_a) * slices + s) * PANEL, barrier);
      for (int p = 0; p < BN / 64; ++p)
        fetch(to + BM * 128 + p * PANEL, bt + ((size_t)min(j0 / 64 + p, last_b) * slices + s) * PANEL, barrier);
    }
    return;
  }

  int row = i0 + warp * 16 + lane / 4, blocks = (n + 127) / 128;  // this row and the one 8 below
  const float *upper = a_scale + min(row, m - 1), *lower = a_scale + min(row + 8, m - 1), *column = b_scale + j0 / 128;
  float sum[BN / 2] = {}, part[BN / 2];
#pragma unroll
  for (int x = 0; x < BN / 2; ++x) part[x] = 0;
  float scale_upper = *upper, scale_lower = *lower, scale_column = *column;
  for (int s = 0; s < slices; ++s) {
    int slot = s % STAGES;
    uint32_t x = tiles + slot * (BM + BN) * 128;
    uint64_t left = describe(x + warp / 4 * PANEL), right = describe(x + BM * 128);
    wait(full + 8 * slot, s / STAGES & 1);
    hold(part);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply(part, left + 2 * step, right + 2 * step, step);  // 32 bytes each
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    float by_upper = scale_upper * scale_column, by_lower = scale_lower * scale_column;
    if (s + 1 < slices) {
      scale_upper = upper[(size_t)(s + 1) * m], scale_lower = lower[(size_t)(s + 1) * m];
      scale_column = column[(size_t)(s + 1) * blocks];
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold(part);
    if (lane == 0) arrive(empty + 8 * slot);
#pragma unroll
    for (int y = 0; y < BN / 2; y += 4) {
      sum[y] += part[y] * by_upper, sum[y + 1] += part[y + 1] * by_upper;
      sum[y + 2] += part[y + 2] * by_lower, sum[y + 3] += part[y + 3] * by_lower;
    }
  }

  // Each thread holds two neighbouring columns of every eight; after the exchange, eight neighbours.
#pragma unroll
  for (int y = 0; y < BN / 2; y += 16) {
    int j = j0 + y * 2 + lane % 4 * 8;
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      uint32_t words[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) words[x] = pack(sum[y + 4 * x + 2 * below], sum[y + 4 * x + 2 * below + 1]);
      exchange(words, lane);
      if (row + 8 * below < m && j < n)
        *(uint4 *)(c + (size_t)(row + 8 * below) * n + j) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}
