// Transpose once, then the fp8 matrix instruction that every chip since sm_89 has (mma.sync). The first launch writes both
// operands K-major, in panels of 64 rows and 128 of k (8 KB) whose 16-byte pieces are swizzled: the second copies panels
// into shared memory as they are, several slices of k ahead, and reads them without bank conflicts.
// workspace: at uint8 cdiv(m, 64) * 64 * k
// workspace: bt uint8 n * k
// launch: transpose [cdiv(cdiv(m, 64), 4) + cdiv(n // 64, 4), k // 128] [256] (a, b, at, bt, m, n, k)
// launch: gemm [cdiv(m, BM) * cdiv(n, BN)] [BM * BN // 64] shared STAGES * (BM + BN) * 128 (at, bt, a_scale, b_scale, c, m, n, k)
// require: STAGES * (BM + BN) * 128 <= 101376
#include <cuda_bf16.h>

#include <cstdint>

#if defined(E4M3FNUZ) && E4M3FNUZ
#error "the matrix unit reads e4m3fn, not e4m3fnuz"
#endif

constexpr int BM = 128;    // tune: 64 128 | tile: rows of c for each block
constexpr int BN = 128;    // tune: 64 128 | tile: columns of c for each block; at most 128, which share a scale
constexpr int STAGES = 3;  // tune: 2 3 4 | memory: slices of 128 of k on their way
constexpr int GROUP = 8;   // tune: 1 4 8 16 | block: tiles along m that run side by side, for the sake of the L2
constexpr int PANEL = 64 * 128;
constexpr int THREADS = BM * BN / 64;  // a warp computes 32 rows by 64 columns

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

// -- gemm -----------------------------------------------------------------------------------------

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

// Where 16 bytes of a row are: panels of 64 rows lie one after the other, so rows are 128 bytes apart.
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
    gemm(const uint8_t *at, const uint8_t *bt, const float *a_scale, const float *b_scale, __nv_bfloat16 *c, int m,
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
    int last_a = (m + 63) / 64 - 1, last_b = n / 64 - 1;  // past the edge the last panel is read again
    if (s < slices)
      for (int x = threadIdx.x; x < (BM + BN) * 8; x += THREADS) {
        int panel = x / 512;
        const uint8_t *from = panel < BM / 64 ? at + ((size_t)min(i0 / 64 + panel, last_a) * slices + s) * PANEL
                                              : bt + ((size_t)min(j0 / 64 + panel - BM / 64, last_b) * slices + s) * PANEL;
        copy(tiles + s % STAGES * (BM + BN) * 128 + x * 16, from + x % 512 * 16);
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
      uint32_t a[2][4], b[4][4];
#pragma unroll
      for (int x = 0; x < 2; ++x) load(a[x], left + place(i1 + 16 * x + lane % 16, 2 * step + lane / 16));
#pragma unroll
      for (int y = 0; y < 4; ++y)
        load(b[y], right + place(j1 + 16 * y + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int x = 0; x < 2; ++x)
#pragma unroll
        for (int y = 0; y < 8; ++y) multiply(part[x][y], a[x], b[y / 2][y % 2 * 2], b[y / 2][y % 2 * 2 + 1]);
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
