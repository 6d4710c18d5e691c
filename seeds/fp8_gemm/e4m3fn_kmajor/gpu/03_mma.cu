// The fp8 matrix instruction that every chip since sm_89 has (mma.sync), operands K-major: 128 of k of each row of a tile
// are copied into shared memory as a line of 128 bytes whose 16-byte pieces are swizzled, several slices of k ahead, and
// read without bank conflicts.
// launch: gemm [cdiv(m, BM) * cdiv(n, BN)] [BM * BN // 64] shared STAGES * (BM + BN) * 128 (a, b, a_scale, b_scale, c, m, n, k)
// require: STAGES * (BM + BN) * 128 <= 101376
#include <cuda_bf16.h>

#include <cstdint>

#if !defined(K_MAJOR) || !K_MAJOR
#error "operands are read K-major: problem.variant=e4m3fn_kmajor"
#endif

constexpr int BM = 128;    // tune: 64 128 | tile: rows of c for each block
constexpr int BN = 128;    // tune: 64 128 | tile: columns of c for each block; at most 128, which share a scale
constexpr int STAGES = 3;  // tune: 2 3 4 | memory: slices of 128 of k on their way
constexpr int GROUP = 8;   // tune: 1 4 8 16 | block: tiles along m that run side by side, for the sake of the L2
constexpr int THREADS = BM * BN / 64;  // a warp computes 32 rows by 64 columns

__device__ __forceinline__ void copy(uint32_t to, const uint8_t *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Four 8x16-byte matrices. Lane l names row l % 8 of matrix l / 8, and gets 4 bytes of row l / 4 of each.
__device__ __forceinline__ void load(uint32_t (&x)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where 16 bytes of a row are in shared memory.
__device__ __forceinline__ uint32_t place(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

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

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const uint8_t *a, const uint8_t *b, const float *a_scale, const float *b_scale, __nv_bfloat16 *c, int m,
         int n, int k) {
  extern __shared__ __align__(128) uint8_t memory[];
  uint32_t tiles = (uint32_t)__cvta_generic_to_shared(memory);
  int tiles_n = (n + BN - 1) / BN, tiles_m = (m + BM - 1) / BM, slices = k / 128;
  int first = blockIdx.x / (GROUP * tiles_n) * GROUP, rest = blockIdx.x % (GROUP * tiles_n);
  int beside = min(tiles_m - first, GROUP);
  int i0 = (first + rest % beside) * BM, j0 = rest / beside * BN;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int i1 = warp % (BM / 32) * 32, j1 = warp / (BM / 32) * 64;  // the warp's part of the tile

  auto fetch = [&](int s) {
    uint32_t to = tiles + s % STAGES * (BM + BN) * 128;
    if (s < slices)
      for (int x = threadIdx.x; x < (BM + BN) * 8; x += THREADS) {
        int row = x / 8, piece = x % 8, at = s * 128 + piece * 16;  // past the edge the last row is read again
        const uint8_t *from = row < BM ? a + (min(i0 + row, m - 1) * k + at) : b + (min(j0 + row - BM, n - 1) * k + at);
        copy(to + place(row, piece), from);
      }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  int blocks = (n + 127) / 128;
  float sum[2][8][4] = {};
  for (int s = 0; s < STAGES - 1; ++s) fetch(s);
  for (int s = 0; s < slices; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch(s + STAGES - 1);  // into what was read in the step before
    uint32_t left = tiles + s % STAGES * (BM + BN) * 128, right = left + BM * 128;
    float part[2][8][4] = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t u[2][4], v[4][4];
#pragma unroll
      for (int x = 0; x < 2; ++x) load(u[x], left + place(i1 + 16 * x + lane % 16, 2 * step + lane / 16));
#pragma unroll
      for (int y = 0; y < 4; ++y)
        load(v[y], right + place(j1 + 16 * y + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int x = 0; x < 2; ++x)
#pragma unroll
        for (int y = 0; y < 8; ++y) multiply(part[x][y], u[x], v[y / 2][y % 2 * 2], v[y / 2][y % 2 * 2 + 1]);
    }
    float column = b_scale[(size_t)s * blocks + j0 / 128];
#pragma unroll
    for (int x = 0; x < 2; ++x)
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        float scale = a_scale[(size_t)s * m + min(i0 + i1 + 16 * x + 8 * below + lane / 4, m - 1)] * column;
#pragma unroll
        for (int y = 0; y < 8; ++y)
#pragma unroll
          for (int z = 0; z < 2; ++z) sum[x][y][2 * below + z] += part[x][y][2 * below + z] * scale;
      }
  }

  // Each thread holds two neighbouring columns of every eight; after the exchange, eight neighbours.
#pragma unroll
  for (int x = 0; x < 2; ++x)
#pragma unroll
    for (int below = 0; below < 2; ++below)
#pragma unroll
      for (int y = 0; y < 8; y += 4) {
        int i = i0 + i1 + 16 * x + 8 * below + lane / 4, j = j0 + j1 + 8 * y + lane % 4 * 8;
        uint32_t words[4];
#pragma unroll
        for (int z = 0; z < 4; ++z) words[z] = pack(sum[x][y + z][2 * below], sum[x][y + z][2 * below + 1]);
        exchange(words, lane);
        if (i < m && j < n) *(uint4 *)(c + (size_t)i * n + j) = make_uint4(words[0], words[1], words[2], words[3]);
      }
}
