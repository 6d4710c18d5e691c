// One operand is turned once, the other never. The first launch writes b (or, with SWAP, a) K-major, in panels of 16 columns by
// 128 of k that have the order which the matrix unit's 128-byte swizzle expects, and makes a tensor map of the other one. That
// one's boxes are copied as they lie, k by rows; ldmatrix.trans and two byte permutes make fragments of them, rows 2g and
// 2g + 1 as rows g and g + 8, with k in an order of its own that the panels share. One to three threads copy; each of two or three
// warpgroups multiplies 64 rows, or 128 in two halves. With SWAP, c is made as its transpose. Where k is short (FORM 2), one launch does all: see below.
// workspace: at uint8 max(1, (FORM == 1) * (max(m, n) * k + 65536))
// workspace: bt uint8 max(1, (FORM < 2) * (max(m, n) * k + 65536))
// workspace: bs float32 max(n * k // 512 + 1024, (PREMUL == 2) * (cdiv(n, 128) * (k // 128) + 1) * m)
// workspace: partial float32 (SPLIT > 1) * SWAP * 132 * 64 * TEAMS * HIGH * BN + (SPLIT - 1) * (1 - SWAP) * 2 * cdiv(m, 128) * 128 * n + (TAIL > 1) * 132 * 64 * TEAMS * HIGH * BN + 4
// workspace: arrived int32 128
// workspace: map uint8 256 * max(132, n // min(BN, STRIP))
// launch: prepare [cdiv(n, 128) + (FORM == 1) * cdiv(m, 128), k // 128] [64] (a, b, b_scale, a_scale, at, bt, bs, map, arrived, m, n, k, cdiv(n, 128)) if FORM < 2 and SWAP == 0
// launch: prepare [cdiv(m, 128) + (FORM == 1) * cdiv(n, 128), k // 128] [64] (b, a, b_scale, a_scale, at, bt, bs, map, arrived, n, m, k, cdiv(n, 128)) if FORM < 2 and SWAP
// launch: gemm [CLM * CLN * min(132 // (CLM * CLN), cdiv(m, 64 * TEAMS * HIGH * CLM) * cdiv(n, BN * CLN) * SPLIT)] [128 * TEAMS + 128] pdl shared STAGES * ((64 * TEAMS * HIGH + BN) * 128 + 256 * TEAMS * HIGH + BN) + 1024 (map, at, bt, a_scale, bs, partial, arrived, c, m, n, k) if FORM < 2 and SWAP == 0
// launch: gemm [CLM * CLN * min(132 // (CLM * CLN), cdiv(n, 64 * TEAMS * HIGH * CLM) * cdiv(m, BN * CLN) * SPLIT)] [128 * TEAMS + 128] pdl shared STAGES * ((64 * TEAMS * HIGH + BN) * 128 + BN * 4 * (1 + (PREMUL > 0) * (TEAMS * HIGH > 2)) + 16 * cdiv(TEAMS * HIGH, 2)) + 1024 (map, at, bt, a_scale, bs, partial, arrived, c, n, m, k) if FORM < 2 and SWAP
// launch: stationary [n // BN * min(cdiv(m, 128), max(1, 132 // (n // BN)))] [384] shared SLICES * BN * 128 + STAGES * 16896 + 128 * (2 * BN + 16) + 1024 (a, b, a_scale, b_scale, map, c, m, n, k) if FORM == 2
// launch: strips [n // STRIP * max(1, min(cdiv(m, 128), 132 // (n // STRIP)))] [128 * HANDS + 128 - 128 * BARE] shared SLICES * STRIP * 128 + ROOMS * 33792 + (STORE // 2) * HANDS * 4 * 2048 * BUFFERS + 1024 (a, b, a_scale, b_scale, map, c, m, n, k) if FORM == 3
// require: FORM != 3 or BARE == 0 or STORE < 2 and FIRST * max(1, min(cdiv(m, 128), 132 // (n // STRIP))) >= cdiv(m, 128)
// require: FORM != 3 or k == 128 * SLICES and n % STRIP == 0 and STRIP % (64 * SPREAD) == 0 and HANDS % SPREAD == 0 and FIRST * (SLICES // 2) <= ROOMS and SLICES * STRIP * 128 + ROOMS * 33792 + (STORE // 2) * HANDS * 4 * 2048 * BUFFERS + 1024 + 3072 <= 232448
// require: FORM >= 2 or STAGES * ((64 * TEAMS * HIGH + BN) * 128 + max(256 * TEAMS * HIGH + BN, SWAP * (BN * 4 * (1 + (PREMUL > 0)) + 32))) + 2560 <= 233472
// require: FORM != 2 or k == 128 * SLICES and n % BN == 0 and SLICES * BN * 128 + STAGES * 16896 + 128 * (2 * BN + 16) + 2560 <= 233472
// require: TAIL == 1 or SPLIT == 1 and (SWAP == 1 or cdiv(m, 64 * TEAMS * HIGH) * cdiv(n, BN) % 132 * TAIL <= 132 and cdiv(m, 64 * TEAMS * HIGH) * cdiv(n, BN) >= 132)
// require: TAIL == 1 or SWAP == 0 or cdiv(n, 64 * TEAMS * HIGH) * cdiv(m, BN) % 132 * TAIL <= 132 and cdiv(n, 64 * TEAMS * HIGH) * cdiv(m, BN) >= 132
// require: FORM < 2 or TEAMS == 2 and HIGH == 1
// require: SPLIT == 1 or SWAP or TEAMS == 2 and HIGH == 1 and cdiv(m, 128) * cdiv(n, BN) * SPLIT <= 132
// require: SPLIT == 1 or SWAP == 0 or cdiv(n, 64 * TEAMS * HIGH) * cdiv(m, BN) * SPLIT <= 132
// require: PREMUL == 0 or SWAP and FORM == 0 and CLM * CLN == 1
// require: EIGHT == 0 or SWAP or BN % 32 == 0 and n % 32 == 0
// require: SHARE == 0 or SWAP and HIGH == 2 and PIECES > 0 and ORDER == 0
// dispatch: if m == 6144 and n == 7168 and k == 256: FORM=3 STRIP=448 HANDS=3 ROOMS=3 REGS=160 FEW=32 AHEAD=0
// dispatch: if m == 1024 and n == 7168 and k == 256: FORM=3 STRIP=256 BARE=1 FIRST=2 ROOMS=2 HANDS=4 AHEAD=0 STORE=0
// dispatch: if m == 1024 and n == 4096 and k == 512: FORM=3 SLICES=4 HANDS=2 BARE=1 FIRST=2
// dispatch: if m == 1024 and n == 7168 and k >= 1024: SWAP=1 HIGH=2 SHARE=1 REGS=240 FEW=24 STAGES=4 PIECES=2 PREMUL=1 COPIERS=1
// dispatch: if m == 1024 and n == 4608 and k >= 1024: SWAP=1 HIGH=2 SHARE=1 REGS=240 FEW=24 STAGES=5 BN=96 PIECES=2 BUFS=2 TAIL=2 PREMUL=1 COPIERS=1
// dispatch: if m == 1024 and n == 3072 and k >= 1024: SWAP=1 HIGH=2 SHARE=1 REGS=240 FEW=24 STAGES=5 BN=96 PIECES=2 BUFS=2 PREMUL=1 COPIERS=1
// dispatch: if m == 6144 and n == 1536 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1 EIGHT=1 GROUP=8
// dispatch: if m == 6144 and n == 4608 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1 EIGHT=1 GROUP=8
// dispatch: if m == 6144 and n == 7168 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1 EIGHT=1
// dispatch: if m == 6144 and n % 128 == 0 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1 EIGHT=1
// dispatch: if k == 256 and n % 128 == 0: FORM=2 SLICES=2 STAGES=8 TURNS=1
// dispatch: if k == 512 and n % 64 == 0 and m == 1024: FORM=2 SLICES=4 BN=64 STAGES=8 TURNS=1
// dispatch: if k == 512 and n % 128 == 0: FORM=2 SLICES=4 TURNS=1
// dispatch: if m == 6144 and n == 576 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=3 SETS=2 BN=144
// dispatch: if m == 6144 and n == 4608 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1 GROUP=16
// dispatch: if m == 6144 and n % 128 == 0 and k >= 1024: TEAMS=3 STAGES=5 REGS=160 FEW=32 PIECES=1
// dispatch: if m == 1024 and n == 7168 and k == 2304: HIGH=2 STAGES=4 PIECES=1 SETS=2 BN=112
// dispatch: if m == 1024 and n <= 512: SPLIT=4
// dispatch: if m == 1024 and n == 576: BN=144 SPLIT=4
// dispatch: if m == 1024 and n == 4608 and k >= 1024: BN=144 PIECES=1 SETS=2
// dispatch: if m == 1024 and n == 3072 and k >= 1024: BN=192 STAGES=5 REGS=240 FEW=24 PIECES=2 SETS=2
// dispatch: if m == 1024 and n == 3072 or m == 6144 and k == 7168 and n > 1024: BN=192 STAGES=5 REGS=240 FEW=24
// dispatch: if m == 6144 and n == 576 and k >= 4096: BN=144 TAIL=2
// dispatch: if m == 6144 and (n == 512 or n == 7168): TAIL=2
// dispatch: if n % 144 == 0 and k >= 4096: BN=144
// dispatch: if m == 1024 and n == 7168 and k >= 1024: SWAP=1 BN=160 STAGES=5
// dispatch: if m == 1024 and n % 96 == 0: BN=96 STAGES=7 TURNS=1
// dispatch: if n % 128 != 0: BN=64
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#if defined(E4M3FNUZ) && E4M3FNUZ
#error "the matrix unit of sm_90 reads e4m3fn, not e4m3fnuz"
#endif

constexpr int TEAMS = 2;           // tune: 2 3 | tile: warpgroups that multiply
constexpr int HIGH = 1;            // tune: 1 2 | tile: blocks of 64 rows of c that each of them has
constexpr int BM = 64 * TEAMS * HIGH;
constexpr int BN = 128;            // tune: 64 96 128 | tile: columns of c for each block; divides n
constexpr int STAGES = 6;          // tune: 3 4 5 6 | memory: slices of 128 of k on their way
constexpr int CLM = 1;             // tune: 1 2 4 | cluster: blocks along m that share the tiles of b
constexpr int CLN = 1;             // tune: 1 2 | cluster: blocks along n that share the tiles of a
constexpr int BLOCKS = 1;          // tune: 1 2 | occupancy: blocks of a multiprocessor
constexpr int REGS = 232;          // registers of a thread that multiplies; 104 where BLOCKS is 2
constexpr int FEW = 40;            // and of one that copies; 24 where BLOCKS is 2
constexpr int AHEAD = 1;           // tune: 0 1 | overlap: a of the next slice is read while this one is multiplied
constexpr int TURNS = 2;           // tune: 1 2 | overlap: parts in which a warpgroup multiplies a slice
constexpr int ORDER = 0;           // tune: 0 1 | overlap: 1 lets the warpgroups issue by turns, so that one adds up while the other multiplies
constexpr int SWAP = 0;            // tune: 0 1 | form: 1 turns a instead of b, and c is made as its transpose
constexpr int EARLY = 1;           // tune: 0 1 | memory: a stage is given back before its sums are added up
constexpr int FORM = 0;            // tune: 0 1 2 3 | form: 0 turns one operand, 1 both, 2 (for sums of 128 * SLICES) none in memory
constexpr int SLICES = 2;          // tune: 2 4 | form: k / 128 where FORM is 2
constexpr int STRIP = 128;         // tune: 64 128 256 448 | form: columns of b that a block keeps where FORM is 3
constexpr int HANDS = 4;           // tune: 2 3 4 | form: warpgroups that multiply where FORM is 3
constexpr int SPREAD = 1;          // tune: 1 2 | form: warpgroups that share the columns of a strip
constexpr int BARE = 0;            // tune: 0 1 | form: 1 (FIRST tiles at most) has no warpgroup that copies
constexpr int THIN = 0;            // tune: 0 1 | form: 1 keeps one slice of a at a time in registers
constexpr int DEEP = 0;            // tune: 0 1 | overlap: 1 (k = 512) reads half of a while the other half is multiplied
constexpr int ROOMS = 4;           // tune: 2 3 4 5 | memory: rooms of 128 rows by 256 of k
constexpr int FIRST = 1;           // tune: 0 1 2 | startup: tiles that come without a tensor map
constexpr int STORE = 1;           // tune: 0 1 2 | memory: c by 64 bytes of a row, by 128, or by a tensor map
constexpr int CS = 0;              // tune: 0 1 | memory: c is written as what is not read again
constexpr int BUFFERS = 2;         // tune: 1 2 | memory: rooms of 2048 bytes of a warp for c where STORE is 2
constexpr int SPLIT = 1;           // tune: 1 2 4 | reduction: parts of k that different blocks add up
constexpr int TAIL = 1;            // tune: 1 2 | reduction: parts of k for the tiles of the last wave, if that is not full
constexpr int PIECES = 0;          // tune: 0 1 2 3 | overlap: parts of the columns that are multiplied by themselves; 0: as TURNS says
constexpr int BUFS = 1;            // tune: 1 2 | overlap: partial sums where PIECES > 0: with 2, one is made while the other is added up
constexpr int SETS = 1;            // tune: 1 2 | overlap: sets of a's fragments where PIECES > 0
constexpr int SHARE = 0;           // tune: 0 1 | overlap: 1 (SWAP, HIGH 2) multiplies both halves by a piece before the next one, which needs its scales once
constexpr int PREMUL = 0;          // tune: 0 1 2 | memory: who multiplies both scales (SWAP): 0 each thread, 1 a warp that else idles, 2 the first launch
constexpr int EIGHT = 0;           // tune: 0 1 | memory: 1 puts b's columns so that a thread has 8 neighbours of c in 32 columns; BN and n are multiples of 32
constexpr int PASSING = 0;         // tune: 0 1 | memory: 1 (EIGHT) stores c as what is not read again
constexpr int GROUP = 0;           // tune: 0 4 8 16 | order: tiles along m that run side by side; 0: all
constexpr int COPIERS = 3;         // tune: 1 2 3 | memory: threads that copy: 2 have one for b and the scales, 3 one for the scales
constexpr int PARTS = SPLIT > TAIL ? SPLIT : TAIL;
constexpr int CL = CLM * CLN;
constexpr int PIECE = SHARE ? (BN / 16 + PIECES - 1) / PIECES * 16 : PIECES ? BN / PIECES : 16;  // columns of the widest
__host__ __device__ constexpr int piece_first(int p) { return (BN / 16 / (PIECES ? PIECES : 1) * p + (p < BN / 16 % (PIECES ? PIECES : 1) ? p : BN / 16 % (PIECES ? PIECES : 1))) * 16; }
static_assert(SHARE || PIECES == 0 || PIECE * PIECES == BN && PIECE % 16 == 0, "pieces of 16 columns");
static_assert(HIGH == 1 || PIECES > 0 && TEAMS == 2, "there are not so many registers");
static_assert(TEAMS == 2 || ORDER == 0 && FORM == 0, "two warpgroups take turns");
constexpr bool BOTH = FORM == 1;
constexpr int N0 = TURNS == 1 ? BN : (BN / 2 + 15) / 16 * 16, N1 = TURNS == 1 ? 16 : BN - N0;  // columns of a turn
constexpr int A_BYTES = BM * 128;
constexpr int B_BYTES = BN * 128;
constexpr int TILE_BYTES = A_BYTES + B_BYTES;
constexpr int SIDE = BM == 128 ? 16 : 32;  // b's scales of the tile's rows, where a is turned
constexpr int SET_BYTES = BN * 4 + (PREMUL == 2 ? 0 : SIDE);  // scales of a tile's columns
constexpr int SCALE_BYTES = !SWAP ? BM * 4 + BN : PREMUL && BM > 128 ? SET_BYTES + BN * 4 : SET_BYTES;
constexpr bool ONE_SCALE = 128 % BN == 0;  // all columns of a tile share one scale of b, else they share two at most

// -- b K-major in panels of 16 columns, and a tensor map of a ---------------------------------------

// Four words of four bytes each, as a 4x4 matrix: rows become columns.
__device__ __forceinline__ void turn(uint32_t (&x)[4]) {
  uint32_t p = __byte_perm(x[0], x[1], 0x5140), q = __byte_perm(x[2], x[3], 0x5140);
  uint32_t r = __byte_perm(x[0], x[1], 0x7362), s = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(p, q, 0x5410), x[1] = __byte_perm(p, q, 0x7632);
  x[2] = __byte_perm(r, s, 0x5410), x[3] = __byte_perm(r, s, 0x7632);
}

// Boxes of `box` bytes by 128 / CLN of k, swizzled by as much.
__device__ void describe_a(uint8_t *map, const uint8_t *a, int m, int k, int box) {
  for (int i = 0; i < 16; ++i) ((uint64_t *)map)[i] = 0;
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(a) : "memory");
  asm volatile("tensormap.replace.tile.rank.global.b1024.b32 [%0], 1;" ::"l"(map) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.global.b1024.b32 [%0], 0, %1;" ::"l"(map), "r"(box) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.global.b1024.b32 [%0], 1, %1;" ::"l"(map), "r"(128 / CLN) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 0, %1;" ::"l"(map), "r"(m) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 1, %1;" ::"l"(map), "r"(k) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], 0, %1;" ::"l"(map), "l"((uint64_t)m) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.global.b1024.b32 [%0], 0, 1;" ::"l"(map) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.global.b1024.b32 [%0], 1, 1;" ::"l"(map) : "memory");
  asm volatile("tensormap.replace.tile.elemtype.global.b1024.b32 [%0], 0;" ::"l"(map) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.global.b1024.b32 [%0], 0;" ::"l"(map) : "memory");
  if (box == 128)
    asm volatile("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%0], 3;" ::"l"(map) : "memory");
  else
    asm volatile("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%0], 2;" ::"l"(map) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.global.b1024.b32 [%0], 0;" ::"l"(map) : "memory");
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// The same in shared memory, which is quicker to change.
__device__ void describe_there(uint32_t map, const uint8_t *a, int m, int k) {
  for (int i = 0; i < 8; ++i) asm volatile("st.shared.v4.b32 [%0], {0, 0, 0, 0};" ::"r"(map + 16 * i) : "memory");
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(a) : "memory");
  asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, 128;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(128 / CLN) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(map), "r"(m) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(k) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(map), "l"((uint64_t)m) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, 1;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
}

// Turns 16 of k by 16 columns. Within 16 of k the order is the one in which ldmatrix hands out what is not turned:
// {0,1,8,9}, {2,3,10,11}, ...; of 16 columns the even ones come first. to: a panel of 16 rows of 128 bytes, swizzled.
// The row of a panel that one of its columns becomes: even columns first; or (EIGHT), of two panels' 32 columns, 8 neighbours for
// each lane of four, four of them in each panel. odd: of the panel that the column is read from.
template <int EIGHT_>
__device__ __forceinline__ int place_of_column(int column, int odd) {
  if (!EIGHT_) return column / 2 + column % 2 * 8;
  int lane = odd * 2 + column / 8;
  return lane * 2 + column % 2 + column % 4 / 2 * 8;
}

template <int EIGHT_, class Put>
__device__ __forceinline__ void turn_chunk(const uint8_t *from, int stride, int chunk, int odd, Put put) {
  uint4 found[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) found[i] = __ldg((const uint4 *)(from + (size_t)i * stride));
#pragma unroll
  for (int four = 0; four < 4; ++four) {  // columns 4 * four ... + 3
    uint32_t words[4][4];                 // [word of the chunk][column]
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint4 x = found[2 * t + i % 2 + i / 2 * 8];
        words[t][i] = four == 0 ? x.x : four == 1 ? x.y : four == 2 ? x.z : x.w;
      }
      turn(words[t]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int column = 4 * four + j, row = place_of_column<EIGHT_>(column, odd), panel = EIGHT_ ? (four % 2 - odd) * 2048 : 0;
      put(panel + row * 128 + ((chunk ^ row % 8) << 4), make_uint4(words[0][j], words[1][j], words[2][j], words[3][j]));
    }
  }
}

// m: rows of a, which is turned only if BOTH; n: rows of b; scale: of the problem's b, with `blocks` in a row.
extern "C" __global__ void __launch_bounds__(64)
    prepare(const uint8_t *a, const uint8_t *b, const float *scale, const float *others, uint8_t *at, uint8_t *bt, float *bs, uint8_t *map,
            int *arrived, int m, int n, int k, int blocks) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  int s = blockIdx.y, first = (n + 127) / 128, chunk = threadIdx.x / 8;
  bool left = BOTH && blockIdx.x >= first;
  int rows = left ? m : n, groups = rows / 16, group = (blockIdx.x - (left ? first : 0)) * 8 + threadIdx.x % 8;
  if (blockIdx.x == 0 && s == 0) {
    if (!BOTH && threadIdx.x == 0) describe_a(map, a, m, k, 128);
    if (BM == 192 && threadIdx.x == 32) describe_a(map + 128, a, m, k, 64);
    arrived[threadIdx.x] = arrived[threadIdx.x + 64] = 0;
  }
  if (PREMUL == 2) {  // products of both scales, a row of n for each block of 128 of m
    int column = blockIdx.x * 128 + threadIdx.x % 32 * 4;
    if (column < n) {
      float4 by = __ldg((const float4 *)(others + (size_t)s * n + column));
#pragma unroll 4
      for (int x = threadIdx.x / 32; x < blocks; x += 2) {
        float w = __ldg(scale + (size_t)s * blocks + x);
        *(float4 *)(bs + ((size_t)s * blocks + x) * n + column) = make_float4(by.x * w, by.y * w, by.z * w, by.w * w);
      }
    }
  } else if (SWAP) {
    for (int x = blockIdx.x * 64 + threadIdx.x; x < blocks; x += gridDim.x * 64) {
      float by = __ldg(scale + (size_t)s * blocks + x);
      ((float4 *)bs)[(size_t)s * blocks + x] = make_float4(by, by, by, by);
    }
  }
  if (group >= groups) return;
  if (!SWAP && !left && chunk == 0) {
    float by = __ldg(scale + (size_t)s * blocks + group / 8);
    ((float4 *)bs)[(size_t)s * groups + group] = make_float4(by, by, by, by);
  }
  uint8_t *to = (left ? at : bt) + ((size_t)s * groups + group) * 2048;
  turn_chunk<EIGHT && !SWAP>((left ? a : b) + ((size_t)s * 128 + chunk * 16) * rows + group * 16, rows, chunk, group % 2,
                           [&](int place, uint4 x) { *(uint4 *)(to + place) = x; });
}

// -- the matrix unit ------------------------------------------------------------------------------

__device__ __forceinline__ void multiply(float (&d)[8], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %13, 0; "
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[8], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %10, 0; "
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[16], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %21, 0; "
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[16], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %18, 0; "
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[24], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %29, 0; "
      "wgmma.mma_async.sync.aligned.m64n48k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[24], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %26, 0; "
      "wgmma.mma_async.sync.aligned.m64n48k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23}, "
      "%24, %25, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[40], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %45, 0; "
      "wgmma.mma_async.sync.aligned.m64n80k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39}, "
      "{%40, %41, %42, %43}, %44, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[40], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %42, 0; "
      "wgmma.mma_async.sync.aligned.m64n80k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39}, "
      "%40, %41, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[48], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %53, 0; "
      "wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[48], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %50, 0; "
      "wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[56], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %61, 0; "
      "wgmma.mma_async.sync.aligned.m64n112k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55}, "
      "{%56, %57, %58, %59}, %60, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[56], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %58, 0; "
      "wgmma.mma_async.sync.aligned.m64n112k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55}, "
      "%56, %57, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %69, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
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

__device__ __forceinline__ void multiply(float (&d)[72], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %77, 0; "
      "wgmma.mma_async.sync.aligned.m64n144k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71}, "
      "{%72, %73, %74, %75}, %76, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[72], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %74, 0; "
      "wgmma.mma_async.sync.aligned.m64n144k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71}, "
      "%72, %73, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[80], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %85, 0; "
      "wgmma.mma_async.sync.aligned.m64n160k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
      "{%80, %81, %82, %83}, %84, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[80], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %82, 0; "
      "wgmma.mma_async.sync.aligned.m64n160k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
      "%80, %81, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[96], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %101, 0; "
      "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "{%96, %97, %98, %99}, %100, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void multiply(float (&d)[96], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %98, 0; "
      "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, p, 1, 1; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
      : "l"(a), "l"(b), "r"(add));
}

// Describes K-major rows of 128 bytes with the 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Keeps the compiler from using sums before the matrix unit has left them, or from moving them while it works.
template <int N>
__device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Keeps registers that the matrix unit reads from being used for something else meanwhile.
__device__ __forceinline__ void keep(const uint32_t (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" ::"r"(a[i / 4][i % 4]) : "memory");
}

// 16 rows of a by 32 of k out of the tile as it lies in memory, k by m: rows 2g and 2g + 1 for lane / 4 = g.
__device__ __forceinline__ void load_a(uint32_t (&x)[4], uint32_t address) {
  uint32_t r0, r1, r2, r3;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address)
               : "memory");
  x[0] = __byte_perm(r0, r1, 0x6420), x[1] = __byte_perm(r0, r1, 0x7531);
  x[2] = __byte_perm(r2, r3, 0x6420), x[3] = __byte_perm(r2, r3, 0x7531);
}

// -- barriers and copies ----------------------------------------------------------------------------

__device__ __forceinline__ void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barrier of a block of the cluster, once `seen` is there: no NaN of these bits comes from a product.
__device__ __forceinline__ void arrive(uint32_t barrier, int rank, float seen) {
  if (CL == 1) {
    int once = __float_as_uint(seen) == 0x7fc12345u ? 2 : 1;
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(once) : "memory");
  } else {
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there], %2; }" ::"r"(barrier),
        "r"(rank), "r"(__float_as_uint(seen) == 0x7fc12345u ? 2 : 1)
        : "memory");
  }
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

__device__ __forceinline__ void fetch(uint32_t to, const void *from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void fetch_part(uint32_t to, const void *from, int bytes, uint32_t barrier, uint16_t blocks, int many) {
  if (many == 1)
    fetch(to, from, bytes, barrier);
  else
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ void fetch_a(uint32_t to, const uint8_t *map, int x, int y, uint32_t barrier,
                                        uint16_t blocks) {
  if (CLN == 1)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
        : "memory");
}

// BM rows of a: panels of 128 that begin at multiples of 128, and one of 64 behind them in shared memory if BM is 192.
__device__ __forceinline__ void fetch_rows(uint32_t to, const uint8_t *map, int i, int k, int part, uint32_t barrier,
                                           uint16_t blocks) {
  k += part * (128 / CLN);
  int odd = BM == 192 ? i % 128 : 0;
#pragma unroll
  for (int x = 0; x < BM / 128; ++x) fetch_a(to + x * 16384 + part * (16384 / CLN), map, i + odd + x * 128, k, barrier, blocks);
  if (BM == 192) fetch_a(to + 16384 + part * (8192 / CLN), map + 128, odd ? i : i + 128, k, barrier, blocks);
}

__device__ __forceinline__ void sync_cluster() {
  if (CL > 1)
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *(uint32_t *)&both;
}

// -- gemm -----------------------------------------------------------------------------------------

struct Tile {
  int i0, j0, first, end, room, part;
  bool split;
  // Clusters of CLM by CLN blocks; those along m run side by side, for the sake of the L2. With TAIL, tiles behind the last
  // full wave are split.
  __device__ Tile(int cluster, int rank, int m, int n, int slices, int whole) {
    int along = (m + BM * CLM - 1) / (BM * CLM), index;
    split = cluster >= whole;
    room = (cluster - whole) / PARTS, part = split ? (cluster - whole) % PARTS : 0, index = split ? whole + room : cluster;
    first = split ? slices * part / PARTS : 0, end = split ? slices * (part + 1) / PARTS : slices;
    int i = index % along, j = index / along;
    if (GROUP) {
      int across = (n + BN * CLN - 1) / (BN * CLN), first_i = index / (GROUP * across) * GROUP, wide = min(GROUP, along - first_i);
      i = first_i + index % (GROUP * across) % wide, j = index % (GROUP * across) / wide;
    }
    i0 = (i * CLM + rank % CLM) * BM;
    j0 = (j * CLN + rank / CLM) * BN;
  }
};

struct Scales {
  float upper, lower, first, last;  // of this thread's two rows; of the first and the last columns
};

// Adds what columns FIRST ... of the tile came to in a slice; from group `turn` of 16 columns on they have b's other scale.
// Where a is turned, every column has a scale of its own, at `columns`; what comes back is the last of them.
template <int FIRST, int N>
__device__ __forceinline__ float promote(float (&sum)[BN / 2], float (&part)[N], const Scales &by, int turn,
                                         uint32_t columns) {
  float upper = by.upper * by.first, lower = by.lower * by.first, w = 0;
  float upper_last = by.upper * by.last, lower_last = by.lower * by.last;
  uint32_t all = ~0u;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    float *to = sum + FIRST / 2 + j * 8, *from = part + j * 8;
    if (SWAP) {
      float x, y, z;
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                   : "r"(columns + (FIRST + j * 16) * 4)
                   : "memory");
      if (PIECES) all &= __float_as_uint(w);
      float first = PREMUL ? 1 : by.first, by_x = x * first, by_y = y * first, by_z = z * first, by_w = w * first;
      to[0] += from[0] * by_x, to[1] += from[1] * by_z, to[2] += from[2] * by_x, to[3] += from[3] * by_z;
      to[4] += from[4] * by_y, to[5] += from[5] * by_w, to[6] += from[6] * by_y, to[7] += from[7] * by_w;
      continue;
    }
    bool same = ONE_SCALE || FIRST / 16 + j < turn;
    float by_upper = same ? upper : upper_last, by_lower = same ? lower : lower_last;
#pragma unroll
    for (int x = 0; x < 8; x += 4) {
      to[x] += from[x] * by_upper, to[x + 1] += from[x + 1] * by_upper;
      to[x + 2] += from[x + 2] * by_lower, to[x + 3] += from[x + 3] * by_lower;
    }
  }
  return PIECES ? __uint_as_float(all) : w;
}

// The same with scales that are there already.
template <int FIRST, int N, int M>
__device__ __forceinline__ void promote_by(float (&sum)[BN / 2], const float (&part)[M], const float (&by)[M / 2]) {
#pragma unroll
  for (int j = 0; j < N / 16; ++j) {
    float *to = sum + FIRST / 2 + j * 8;
    const float *from = part + j * 8, *w = by + j * 4;
    to[0] += from[0] * w[0], to[1] += from[1] * w[2], to[2] += from[2] * w[0], to[3] += from[3] * w[2];
    to[4] += from[4] * w[1], to[5] += from[5] * w[3], to[6] += from[6] * w[1], to[7] += from[7] * w[3];
  }
}

// Waits until the other warpgroup has issued its products; then lets it go on.
__device__ __forceinline__ void my_turn(int team) {
  if (ORDER) asm volatile("bar.sync %0, 256;" ::"r"(2 + team) : "memory");
}

__device__ __forceinline__ void your_turn(int team) {
  if (ORDER) asm volatile("bar.arrive %0, 256;" ::"r"(3 - team) : "memory");
}

template <int N>
__device__ __forceinline__ void start(float (&d)[N], const uint32_t (&a)[4][4], uint32_t here, uint32_t there, int team) {
  uint64_t left = describe(here), right = describe(there);
  if constexpr (!BOTH) keep(a);
  my_turn(team);
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if constexpr (BOTH)
      multiply(d, left + 2 * x, right + 2 * x, x);
    else
      multiply(d, a[x], right + 2 * x, x);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  your_turn(team);
}

// Sums of all parts of k, each block those of its own columns: 16 columns in PARTS * 16. The blocks of a tile run at the
// same time, since no more than one for each multiprocessor is launched.
__device__ __forceinline__ void add_up(float (&sums)[HIGH][BN / 2], float *partial, int *arrived, int tile, int part) {
  int thread = threadIdx.x - 128;
  float4 *room = (float4 *)partial + (size_t)tile * PARTS * (HIGH * BN / 16) * TEAMS * 256;
#pragma unroll
  for (int g = 0; g < HIGH * BN / 16; ++g) {
    float *sum = sums[g / (BN / 16)];
    int j = g % (BN / 16);
    if (g / (EIGHT && !SWAP ? 2 : 1) % PARTS == part) continue;
    float4 *to = room + ((part * (HIGH * BN / 16) + g) * 2) * (128 * TEAMS) + thread;
    __stcg(to, make_float4(sum[j * 8], sum[j * 8 + 1], sum[j * 8 + 2], sum[j * 8 + 3]));
    __stcg(to + 128 * TEAMS, make_float4(sum[j * 8 + 4], sum[j * 8 + 5], sum[j * 8 + 6], sum[j * 8 + 7]));
  }
  asm volatile("bar.sync 1, %0;" ::"n"(128 * TEAMS) : "memory");
  if (thread == 0) {
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(arrived + tile) : "memory");
    int there;
    do asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(arrived + tile) : "memory");
    while (there < PARTS);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  asm volatile("bar.sync 1, %0;" ::"n"(128 * TEAMS) : "memory");
#pragma unroll
  for (int g = 0; g < HIGH * BN / 16; ++g) {
    float *sum = sums[g / (BN / 16)];
    int j = g % (BN / 16);
    if (g / (EIGHT && !SWAP ? 2 : 1) % PARTS != part) continue;
    float total[8] = {};
#pragma unroll
    for (int q = 0; q < PARTS; ++q) {  // always in this order
      const float4 *from = room + ((q * (HIGH * BN / 16) + g) * 2) * (128 * TEAMS) + thread;
      float4 x = make_float4(sum[j * 8], sum[j * 8 + 1], sum[j * 8 + 2], sum[j * 8 + 3]);
      float4 y = make_float4(sum[j * 8 + 4], sum[j * 8 + 5], sum[j * 8 + 6], sum[j * 8 + 7]);
      if (q != part) x = __ldcg(from), y = __ldcg(from + 128 * TEAMS);
      total[0] += x.x, total[1] += x.y, total[2] += x.z, total[3] += x.w;
      total[4] += y.x, total[5] += y.y, total[6] += y.z, total[7] += y.w;
    }
#pragma unroll
    for (int x = 0; x < 8; ++x) sum[j * 8 + x] = total[x];
  }
}

template <int N, int I = 0, class Do>
__device__ __forceinline__ void each(Do &&what) {
  if constexpr (I < N) what(std::integral_constant<int, I>{}), each<N, I + 1>(what);
}
constexpr int PIECES_ = PIECES ? PIECES : 1;

extern "C" __global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(128 * TEAMS + 128, BLOCKS)
    gemm(const uint8_t *map, const uint8_t *at, const uint8_t *bt, const float *a_scale, const float *bs, float *partial, int *arrived,
         __nv_bfloat16 *c, int m, int n, int k) {
  if (FORM >= 2) return;
  extern __shared__ uint8_t memory[];
  __shared__ alignas(8) uint64_t barriers[(PREMUL == 1 ? 3 : 2) * STAGES];
  uint32_t tiles = ((uint32_t)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  uint32_t scales = tiles + STAGES * TILE_BYTES;
  uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES, ready = empty + 8 * STAGES;
  int slices = k / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int rank = blockIdx.x % CL;
  // Of all tiles the first `whole` are made by one block each, the others by PARTS blocks.
  int tiles_of_c = (m + BM * CLM - 1) / (BM * CLM) * ((n + BN * CLN - 1) / (BN * CLN)), at_once = gridDim.x / CL;
  int whole = SPLIT > 1 ? 0 : TAIL > 1 ? tiles_of_c / at_once * at_once : tiles_of_c;
  int count = whole + (tiles_of_c - whole) * PARTS;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s), "r"(4 * TEAMS * CL) : "memory");
      if (PREMUL == 1) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ready + 8 * s) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
  sync_cluster();

  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
    if (lane == 0 && warp < COPIERS) {
      asm volatile("griddepcontrol.wait;" ::: "memory");
      if (!BOTH) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
      if (BM == 192) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map + 128) : "memory");
      uint16_t same_m = 0, same_n = 0;
      for (int x = 0; x < CLN; ++x) same_m |= 1 << (rank % CLM + x * CLM);
      for (int x = 0; x < CLM; ++x) same_n |= 1 << (rank / CLM * CLM + x);
      uint32_t slot = 0, phase = 1;
      for (int cluster = blockIdx.x / CL; cluster < count; cluster += gridDim.x / CL) {
        Tile tile(cluster, rank, m, n, slices, whole);
        int bytes = max(0, min(BM, m - tile.i0)) * 4;
        for (int s = tile.first; s < tile.end; ++s) {
          wait(empty + 8 * slot, phase);
          uint32_t to = tiles + slot * TILE_BYTES, barrier = full + 8 * slot, beside = scales + slot * SCALE_BYTES;
          if (COPIERS == 1 || warp == 0) {
            expect(barrier, TILE_BYTES + (PREMUL == 2 ? min(BN, n - tile.j0) * (BM > 128 ? 8 : 4) : SWAP ? min(BN, n - tile.j0) * 4 + SIDE : bytes + BN));
            if (BOTH)
              fetch(to, at + ((size_t)s * m + tile.i0) * 128, A_BYTES, barrier);
            else
              fetch_rows(to, map, tile.i0, s * 128, rank / CLM, barrier, same_m);
          }
          if (COPIERS == 1 || warp == 1) {
            fetch_part(to + A_BYTES + rank % CLM * (B_BYTES / CLM), bt + (uint32_t)((s * n + tile.j0) * 128 + rank % CLM * (B_BYTES / CLM)), B_BYTES / CLM, barrier,
                       same_n, CLM);
          }
          if (COPIERS < 3 ? COPIERS == 1 || warp == 1 : warp == 2) {
            if (PREMUL == 2) {
              const float *row = bs + (size_t)(s * ((m + 127) / 128) + tile.i0 / 128) * n + tile.j0;
              fetch(beside, row, min(BN, n - tile.j0) * 4, barrier);
              if (BM > 128) fetch(beside + SET_BYTES, row + n, min(BN, n - tile.j0) * 4, barrier);
            } else if (SWAP) {
              fetch(beside, a_scale + (uint32_t)(s * n + tile.j0), min(BN, n - tile.j0) * 4, barrier);
              fetch(beside + BN * 4, bs + (uint32_t)(s * ((m + 127) / 128) + tile.i0 / 128) * 4, SIDE, barrier);
            } else {
              if (bytes > 0) fetch(beside, a_scale + (uint32_t)(s * m + tile.i0), bytes, barrier);
              fetch(beside + BM * 4, bs + (uint32_t)(s * n + tile.j0) / 4, BN, barrier);
            }
          }
          if (++slot == STAGES) slot = 0, phase ^= 1;
        }
      }
    }
    if (PREMUL == 1 && warp == 3) {  // multiplies both scales where they are
      uint32_t slot = 0, phase = 0;
      for (int cluster = blockIdx.x; cluster < count; cluster += gridDim.x) {
        Tile tile(cluster, rank, m, n, slices, whole);
        for (int s = tile.first; s < tile.end; ++s) {
          uint32_t beside = scales + slot * SCALE_BYTES;
          wait(full + 8 * slot, phase);
#pragma unroll
          for (int g = 0; g < (BN + 127) / 128; ++g) {
            uint32_t there = beside + (g * 32 + lane) * 16;
            if (g * 128 + lane * 4 >= BN) continue;
            float w[4], by, last;
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(w[0]), "=f"(w[1]), "=f"(w[2]), "=f"(w[3]) : "r"(there) : "memory");
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(by) : "r"(beside + BN * 4) : "memory");
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there), "f"(w[0] * by), "f"(w[1] * by), "f"(w[2] * by), "f"(w[3] * by) : "memory");
            if (BM > 128) {
              asm volatile("ld.shared.f32 %0, [%1];" : "=f"(last) : "r"(beside + BN * 4 + 16) : "memory");
              asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there + SET_BYTES), "f"(w[0] * last), "f"(w[1] * last), "f"(w[2] * last), "f"(w[3] * last) : "memory");
            }
          }
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          __syncwarp();
          if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ready + 8 * slot) : "memory");
          if (++slot == STAGES) slot = 0, phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS));
    if (PARTS > 1) asm volatile("griddepcontrol.wait;" ::: "memory");
    int team = warp / 4 - 1, within = team * 64 * HIGH + warp % 4 * 16;  // first of this warp's 16 rows
    uint32_t from = within / 128 * 16384 + lane * 128 + (((within % 128 / 16) ^ lane % 8) << 4), pitch = 4096;
    if (BM == 192 && team == 2) from = 16384 + lane * 64 + ((warp % 4 ^ lane / 2 % 4) << 4), pitch = 2048;
    int side = SWAP ? within / 128 : 0;
    uint32_t slot = 0, phase = 0;
    if (team == 1) your_turn(team);
    constexpr int R0 = PIECES ? PIECE / 2 : N0 / 2, R1 = PIECES == 0 ? N1 / 2 : BUFS == 2 ? PIECE / 2 : 8;
    float part[R0], other[R1];
    uint32_t left[PIECES && !SHARE ? SETS : 2][4][4];
    float columns_by[SHARE ? PIECE / 4 : 1];
    Scales by[2];
    uint32_t all = ~0u;
#pragma unroll
    for (int x = 0; x < R0; ++x) part[x] = 0;
#pragma unroll
    for (int x = 0; x < R1; ++x) other[x] = 0;
    // All that a slice is multiplied with, but b. The scales come first: later they would wait for the tensor core's reads
    // until the stage has been filled anew.
    auto load = [&](uint32_t (&to)[4][4], Scales &scale, int h = 0) {
      if (h == 0) wait(full + 8 * slot, phase);
      uint32_t beside = scales + slot * SCALE_BYTES;
      if (PREMUL) {
      } else if (SWAP) {
        if (!SHARE || h == 0) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale.first) : "r"(beside + BN * 4 + 16 * side) : "memory");
      } else {
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(scale.upper), "=f"(scale.lower)
                     : "r"(beside + (within + h * 64 + lane / 4 * 2) * 4)
                     : "memory");
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale.first) : "r"(beside + BM * 4) : "memory");
        if (!ONE_SCALE)
          asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale.last) : "r"(beside + BM * 4 + BN - 16) : "memory");
      }
#pragma unroll
      for (int x = 0; x < (BOTH ? 0 : 4); ++x) load_a(to[x], tiles + slot * TILE_BYTES + (h ? from ^ 64 : from) + x * (BM == 192 ? pitch : 4096));
      if (PREMUL == 1 && !SHARE && h == 0) wait(ready + 8 * slot, phase);
    };
    for (int cluster = blockIdx.x / CL; cluster < count; cluster += gridDim.x / CL) {
      Tile tile(cluster, rank, m, n, slices, whole);
      if (BM == 192) {  // the panel of 64 rows comes first in every other tile
        bool odd = tile.i0 % 128;
        within = (odd ? (team + 1) % 3 : team) * 64 + warp % 4 * 16;
        if (SWAP) side = (tile.i0 % 128 + within) / 128;
      }
      float sum[HIGH][BN / 2];
#pragma unroll
      for (int x = 0; x < HIGH * BN / 2; ++x) sum[x / (BN / 2)][x % (BN / 2)] = 0;
      int turn = 8 - tile.j0 % 128 / 16;
      load(left[0], by[0]);
      if constexpr (SHARE)
        start(reinterpret_cast<float (&)[piece_first(1) / 2]>(part), left[0], 0, tiles + slot * TILE_BYTES + A_BYTES, team);
      else
        start(part, left[0], tiles + slot * TILE_BYTES + team * 8192, tiles + slot * TILE_BYTES + A_BYTES, team);

      // One of a slice's products where both halves are multiplied by a piece before the next one, so that it needs its
      // scales once. A half's fragments are replaced once its last product of the slice is there.
      auto shared = [&](auto which, auto more, auto odd) {
        constexpr int g = decltype(which)::value, h = g % 2, p = g / 2, o = decltype(odd)::value ? 1 : 0;
        constexpr bool last = g + 1 == 2 * PIECES_, next = decltype(more)::value || !last;
        constexpr int first = piece_first(p), width = piece_first(p + 1) - first, new_p = (g + 1) / 2 % PIECES_;
        constexpr int new_first = piece_first(new_p), new_width = piece_first(new_p + 1) - new_first;
        constexpr int buffer = BUFS == 2 ? g % 2 : 0;
        uint32_t here = slot, columns = scales + slot * SCALE_BYTES + lane % 4 * 16 + (PREMUL ? side * SET_BYTES : 0);
        auto begin = [&]() {
          uint32_t there = tiles + slot * TILE_BYTES + A_BYTES + new_first * 128;
          if constexpr (BUFS == 2 && buffer == 0)
            start(reinterpret_cast<float (&)[new_width / 2]>(other), left[1 - h], 0, there, team);
          else
            start(reinterpret_cast<float (&)[new_width / 2]>(part), left[1 - h], 0, there, team);
        };
        if constexpr (BUFS == 2) {  // the next product's fragments, and that product
          if constexpr (g == 0) load(left[1], by[0], 1);
          if constexpr (last)
            if (++slot == STAGES) slot = 0, phase ^= 1;
          if constexpr (last && next) load(left[0], by[0], 0);
          if constexpr (next) begin();
        }
        if constexpr (h == 0) {
          if (PREMUL == 1 && g == 0) wait(ready + 8 * here, phase);
#pragma unroll
          for (int j = 0; j < width / 16; ++j) {
            float w[4];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(w[0]), "=f"(w[1]), "=f"(w[2]), "=f"(w[3])
                         : "r"(columns + (first + j * 16) * 4)
                         : "memory");
#pragma unroll
            for (int x = 0; x < 4; ++x) columns_by[j * 4 + x] = PREMUL ? w[x] : w[x] * by[0].first;
            all &= __float_as_uint(columns_by[j * 4]);
          }
        }
        if constexpr (BUFS == 1) {
          if constexpr (g == 0) load(left[1], by[0], 1);
          if constexpr (last)
            if (++slot == STAGES) slot = 0, phase ^= 1;
          if constexpr (last && next) load(left[0], by[0], 0);
        }
        if constexpr (BUFS == 2 && next)
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        else
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if constexpr (buffer == 0)
          hold(reinterpret_cast<float (&)[width / 2]>(part));
        else
          hold(reinterpret_cast<float (&)[width / 2]>(other));
        if constexpr (p + 1 == PIECES_ && h == 1) keep(left[1]);
        if constexpr (p + 1 == PIECES_ && h == 0) keep(left[0]);
        if constexpr (last) {
          __syncwarp();
          if (lane < CL) arrive(empty + 8 * here, lane, __uint_as_float(all));
          all = ~0u;
        }
        if constexpr (buffer == 0)
          promote_by<first, width>(sum[h], part, columns_by);
        else
          promote_by<first, width>(sum[h], other, columns_by);
        if constexpr (BUFS == 1 && next) begin();
      };
      // One of a slice's HIGH * PIECES products, and what is added up meanwhile.
      auto product = [&](auto which, auto more, auto odd) {
        constexpr int g = decltype(which)::value, o = decltype(odd)::value ? 1 : 0, h = g / PIECES_, p = g % PIECES_;
        constexpr bool last = g + 1 == HIGH * PIECES_, next = decltype(more)::value || !last, fresh = p + 1 == PIECES_;
        constexpr int buffer = BUFS == 2 ? (o * PIECES_ + g) % 2 : 0, now = HIGH == 2 ? h : o, set = SETS == 2 ? now : 0;
        constexpr int new_set = SETS == 2 && fresh ? 1 - set : set, new_piece = (p + 1) % PIECES_, new_half = HIGH == 2 && fresh ? 1 - h : h;
        uint32_t here = slot, columns = scales + slot * SCALE_BYTES + lane % 4 * 16 + (PREMUL ? side * SET_BYTES : 0);
        if constexpr (last)
          if (++slot == STAGES) slot = 0, phase ^= 1;
        auto begin = [&](auto to) {
          uint32_t there = tiles + slot * TILE_BYTES + A_BYTES + new_piece * PIECE * 128;
          if constexpr (decltype(to)::value == 0)
            start(part, left[new_set], 0, there, team);
          else
            start(other, left[new_set], 0, there, team);
        };
        auto add = [&]() {
          float seen;
          if constexpr (buffer == 0)
            seen = promote<p * PIECE>(sum[h], part, by[now], turn, columns);
          else
            seen = promote<p * PIECE>(sum[h], other, by[now], turn, columns);
          all &= __float_as_uint(seen);
          if (last && (SWAP || !EARLY)) {
            __syncwarp();
            if (lane < CL) arrive(empty + 8 * here, lane, SWAP ? __uint_as_float(all) : ONE_SCALE ? by[now].first : by[now].last);
            all = ~0u;
          }
        };
        auto give = [&]() {
          if constexpr (fresh) keep(left[set]);
          if (last && EARLY && !SWAP && lane < CL) {
            uint32_t both = __float_as_uint(by[now].upper) & __float_as_uint(by[now].first);
            if (!ONE_SCALE) both &= __float_as_uint(by[now].last);
            arrive(empty + 8 * here, lane, __uint_as_float(both));
          }
        };
        if constexpr (next && fresh && SETS == 2) load(left[new_set], by[1 - now], new_half);
        if constexpr (next && BUFS == 2 && (SETS == 2 || !fresh)) {
          begin(std::integral_constant<int, 1 - buffer>{});
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if constexpr (buffer == 0) hold(part); else hold(other);
          give();
          add();
        } else {
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          if constexpr (buffer == 0) hold(part); else hold(other);
          give();
          if constexpr (next && fresh && SETS == 1) load(left[0], by[1 - now], new_half);
          if constexpr (next && BUFS == 2) begin(std::integral_constant<int, 1 - buffer>{});
          add();
          if constexpr (next && BUFS == 1) begin(std::integral_constant<int, 0>{});
        }
      };
      auto step = [&](auto more, auto odd) {
        constexpr int o = decltype(odd)::value ? 1 : 0;
        uint32_t here = slot, columns = scales + slot * SCALE_BYTES + lane % 4 * 16 + (PREMUL ? side * SET_BYTES : 0);
        if constexpr (SHARE) {
          each<2 * PIECES_>([&](auto which) { shared(which, more, odd); });
        } else if constexpr (PIECES > 0) {
          each<HIGH * PIECES_>([&](auto which) { product(which, more, odd); });
        } else if constexpr (TURNS == 1) {
          if (++slot == STAGES) slot = 0, phase ^= 1;
          if constexpr (AHEAD && decltype(more)::value) load(left[1 - o], by[1 - o]);
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          hold(part);
          if constexpr (!BOTH) keep(left[o]);
          if constexpr (EARLY && !SWAP) {
            if (lane < CL) arrive(empty + 8 * here, lane, ONE_SCALE ? by[o].first : by[o].last);
            promote<0>(sum[0], part, by[o], turn, columns);
          } else {
            float seen = promote<0>(sum[0], part, by[o], turn, columns);
            __syncwarp();
            if (lane < CL) arrive(empty + 8 * here, lane, seen);
          }
          if constexpr (!AHEAD && decltype(more)::value) load(left[1 - o], by[1 - o]);
          if constexpr (decltype(more)::value) start(part, left[1 - o], tiles + slot * TILE_BYTES + team * 8192, tiles + slot * TILE_BYTES + A_BYTES, team);
        } else {
          start(other, left[o], tiles + here * TILE_BYTES + team * 8192, tiles + here * TILE_BYTES + A_BYTES + N0 * 128, team);
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          hold(part);
          promote<0>(sum[0], part, by[o], turn, columns);
          if (++slot == STAGES) slot = 0, phase ^= 1;
          if constexpr (decltype(more)::value) {
            load(left[1 - o], by[1 - o]);
            start(part, left[1 - o], tiles + slot * TILE_BYTES + team * 8192, tiles + slot * TILE_BYTES + A_BYTES, team);
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          } else {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          }
          hold(other);
          if constexpr (!BOTH && BN < 192) keep(left[o]);  // with 192 columns that costs registers that are not there
          float seen = promote<N0>(sum[0], other, by[o], turn, columns);
          __syncwarp();
          if (lane < CL) arrive(empty + 8 * here, lane, seen);
        }
      };
      const std::false_type no{};
      const std::true_type yes{};
      int s = tile.first;
      if constexpr (SHARE && BUFS == 1) {
        for (; s + 1 < tile.end; ++s) step(yes, no);
        step(no, no);
      } else if constexpr (HIGH == 2) {
        for (; s + 2 < tile.end; s += 2) step(yes, no), step(yes, no);
        if (s + 1 < tile.end)
          step(yes, no), step(no, no);
        else
          step(no, no);
      } else {
        for (; s + 2 < tile.end; s += 2) step(yes, no), step(yes, yes);
        if (s + 1 < tile.end)
          step(yes, no), step(no, yes);
        else
          step(no, no);
      }

      if (PARTS > 1 && tile.split) add_up(sum, partial, arrived, tile.room, tile.part);
      // Of every 16 columns a thread has four that are neighbours, in two rows that are neighbours.
#pragma unroll
      for (int h = 0; h < HIGH; ++h) {
        int row = tile.i0 + within + h * 64 + lane / 4 * 2;
        if (row >= m) continue;
        if constexpr (EIGHT && !SWAP) {
          __nv_bfloat16 *at_row = c + (size_t)row * n + tile.j0 + lane % 4 * 8;
#pragma unroll
          for (int j = 0; j < BN / 16; j += 2) {
            if (PARTS > 1 && tile.split && (h * (BN / 16) + j) / 2 % PARTS != tile.part) continue;
            float *x = sum[h] + j * 8;
            if (tile.j0 + j * 16 >= n) continue;
            uint4 upper = make_uint4(pack(x[0], x[1]), pack(x[4], x[5]), pack(x[8], x[9]), pack(x[12], x[13]));
            uint4 lower = make_uint4(pack(x[2], x[3]), pack(x[6], x[7]), pack(x[10], x[11]), pack(x[14], x[15]));
            if constexpr (PASSING) {
              __stcs((uint4 *)(at_row + j * 16), upper);
              __stcs((uint4 *)(at_row + n + j * 16), lower);
            } else {
              *(uint4 *)(at_row + j * 16) = upper;
              *(uint4 *)(at_row + n + j * 16) = lower;
            }
          }
          continue;
        }
        __nv_bfloat16 *to = c + (SWAP ? (size_t)(tile.j0 + lane % 4 * 4) * m + row : (size_t)row * n + tile.j0 + lane % 4 * 4);
#pragma unroll
        for (int j = 0; j < BN / 16; ++j) {
          if (PARTS > 1 && tile.split && (h * (BN / 16) + j) % PARTS != tile.part) continue;
          float *x = sum[h] + j * 8;
          if (!SWAP && tile.j0 + j * 16 < n) {
            *(uint2 *)(to + j * 16) = make_uint2(pack(x[0], x[4]), pack(x[1], x[5]));
            *(uint2 *)(to + n + j * 16) = make_uint2(pack(x[2], x[6]), pack(x[3], x[7]));
          } else if (SWAP && tile.j0 + j * 16 < n) {
            *(uint32_t *)(to + (size_t)(j * 16) * m) = pack(x[0], x[2]);
            *(uint32_t *)(to + (size_t)(j * 16 + 1) * m) = pack(x[4], x[6]);
            *(uint32_t *)(to + (size_t)(j * 16 + 2) * m) = pack(x[1], x[3]);
            *(uint32_t *)(to + (size_t)(j * 16 + 3) * m) = pack(x[5], x[7]);
          }
        }
      }
    }
  }
  __syncwarp();
  sync_cluster();
}

// -- short sums -------------------------------------------------------------------------------------

// For k = 128 * SLICES, in one launch: a block turns its BN columns of b in shared memory once, and keeps them. Then it goes
// down the rows; the blocks of a strip of columns take tiles by turns. a is copied as it lies, by a tensor map that each
// block makes for itself. The two warpgroups have 64 rows each and their own pace: one writes c while the other multiplies.
// c goes through shared memory, 16 rows of a warp at a time, so that whole rows of the tile are stored at once.
constexpr int OUT_ROW = BN * 2 + 16, OUT_BYTES = 16 * OUT_ROW;

extern "C" __global__ void __launch_bounds__(384, 1)
    stationary(const uint8_t *a, const uint8_t *b, const float *a_scale, const float *b_scale, uint8_t *maps,
               __nv_bfloat16 *c, int m, int n, int k) {
  if (FORM != 2) return;
  extern __shared__ uint8_t memory[];
  __shared__ alignas(128) uint8_t drafts[128];
  __shared__ alignas(8) uint64_t barriers[2 * STAGES];
  constexpr int STAGE = A_BYTES;
  uint32_t right = ((uint32_t)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  uint32_t tiles = right + SLICES * B_BYTES, scales = tiles + STAGES * STAGE, out = scales + STAGES * 512;
  uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int strips = n / BN, parts = gridDim.x / strips, strip = blockIdx.x % strips, first = blockIdx.x / strips;
  int j0 = strip * BN, count = (m + 127) / 128, blocks = (n + 127) / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(empty + 8 * s) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
    uint8_t *map = maps + blockIdx.x * 128;
    if (warp == 0) {
      uint32_t draft = (uint32_t)__cvta_generic_to_shared(drafts);
      if (lane == 0) describe_there(draft, a, m, k);
      __syncwarp();
      asm volatile(
          "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map),
          "r"(draft)
          : "memory");
    }
    if (threadIdx.x == 0) {
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
      uint32_t slot = 0, phase = 1;
      for (int i = first; i < count; i += parts) {
        int bytes = min(128, m - i * 128) * 4;
        for (int s = 0; s < SLICES; ++s) {
          wait(empty + 8 * slot, phase);
          expect(full + 8 * slot, STAGE + bytes);
          fetch_a(tiles + slot * STAGE, map, i * 128, s * 128, full + 8 * slot, 0);
          fetch(scales + slot * 512, a_scale + (size_t)s * m + i * 128, bytes, full + 8 * slot);
          if (++slot == STAGES) slot = 0, phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS));
    int team = warp / 4 - 1, within = team * 64 + warp % 4 * 16;
    for (int job = threadIdx.x - 128; job < SLICES * 8 * (BN / 16); job += 256) {
      int group = job / 8 % (BN / 16), chunk = job % 8 + job / 8 / (BN / 16) * 8;
      uint32_t to = right + chunk / 8 * B_BYTES + group * 2048;
      turn_chunk<0>(b + (size_t)chunk * 16 * n + j0 + group * 16, n, chunk % 8, 0, [&](int place, uint4 x) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + place), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                     : "memory");
      });
    }
    float first_scale[SLICES], last_scale[SLICES];
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
      first_scale[s] = __ldg(b_scale + s * blocks + j0 / 128);
      last_scale[s] = ONE_SCALE ? 0 : __ldg(b_scale + s * blocks + (j0 + BN - 1) / 128);
    }
    int turn = 8 - j0 % 128 / 16;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 256;" ::: "memory");

    uint32_t from = lane * 128 + (((within / 16) ^ lane % 8) << 4);
    uint32_t mine = out + (warp - 4) * OUT_BYTES, slot = 0, phase = 0;
    uint32_t left[2][4][4];
    float part[BN / 2], upper[2], lower[2];
#pragma unroll
    for (int x = 0; x < BN / 2; ++x) part[x] = 0;
    auto load = [&](uint32_t (&to)[4][4], float &up, float &low) {
      wait(full + 8 * slot, phase);
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(up), "=f"(low)
                   : "r"(scales + slot * 512 + (within + lane / 4 * 2) * 4)
                   : "memory");
#pragma unroll
      for (int x = 0; x < 4; ++x) load_a(to[x], tiles + slot * STAGE + from + x * 4096);
      // The stage is given back once all that this warp reads of it has come. No product has sums of these bits.
      bool odd = (__float_as_uint(low) == 0x7fc12345u) & (to[0][0] == 0x7fc12345u) & (to[1][0] == 0x7fc12345u) &
                 (to[2][0] == 0x7fc12345u) & (to[3][0] == 0x7fc12345u);
      __syncwarp();
      if (lane == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(empty + 8 * slot), "r"(odd ? 2 : 1) : "memory");
      if (++slot == STAGES) slot = 0, phase ^= 1;
    };
    load(left[0], upper[0], lower[0]);  // there are no more blocks in a strip than tiles
    start(part, left[0], 0, right, team);
    auto round = [&](int i, auto more) {
      constexpr bool more_tiles = decltype(more)::value;
      float sum[BN / 2];
      uint32_t packed[BN / 4];
#pragma unroll
      for (int s = 0; s < SLICES; ++s) {
        int now = s % 2;
        if (more_tiles || s + 1 < SLICES) load(left[1 - now], upper[1 - now], lower[1 - now]);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(part);
        keep(left[now]);
        float up[2] = {upper[now] * first_scale[s], upper[now] * last_scale[s]};
        float low[2] = {lower[now] * first_scale[s], lower[now] * last_scale[s]};
#pragma unroll
        for (int x = 0; x < BN / 2; ++x) {
          bool other = !ONE_SCALE && x / 8 >= turn;
          float by = x % 4 < 2 ? (other ? up[1] : up[0]) : (other ? low[1] : low[0]);
          sum[x] = s == 0 ? part[x] * by : sum[x] + part[x] * by;
        }
        if (s + 1 == SLICES) {
#pragma unroll
          for (int j = 0; j < BN / 16; ++j) {
            float *x = sum + j * 8;
            packed[4 * j] = pack(x[0], x[4]), packed[4 * j + 1] = pack(x[1], x[5]);
            packed[4 * j + 2] = pack(x[2], x[6]), packed[4 * j + 3] = pack(x[3], x[7]);
#pragma unroll
            for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(packed[4 * j + w]));
          }
        }
        if (more_tiles || s + 1 < SLICES) start(part, left[1 - now], 0, right + (s + 1) % SLICES * B_BYTES, team);
      }
      // 16 rows of this warp
      __syncwarp();
#pragma unroll
      for (int j = 0; j < BN / 16; ++j) {
        uint32_t to = mine + lane / 4 * 2 * OUT_ROW + j * 32 + lane % 4 * 8;
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(packed[4 * j]), "r"(packed[4 * j + 1]) : "memory");
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to + OUT_ROW), "r"(packed[4 * j + 2]), "r"(packed[4 * j + 3])
                     : "memory");
      }
      __syncwarp();
      constexpr int WIDE = BN / 8, AT_ONCE = 32 / WIDE;  // lanes of a row, rows of a store
#pragma unroll
      for (int r = 0; r < 16; r += AT_ONCE) {
        int here = r + lane / WIDE, row = i * 128 + within + here;
        if (lane < WIDE * AT_ONCE && here < 16 && row < m) {
          uint4 x;
          asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                       : "r"(mine + here * OUT_ROW + lane % WIDE * 16)
                       : "memory");
          *(uint4 *)(c + (size_t)row * n + j0 + lane % WIDE * 8) = x;
        }
      }
    };
    int i = first;
    for (; i + parts < count; i += parts) round(i, std::true_type{});
    round(i, std::false_type{});
  }
}

// -- short sums, tiles taken by single warpgroups -----------------------------------------------------

// For k = 128 * SLICES, in one launch: a block turns its STRIP columns of b in shared memory once, and keeps them. Then it goes
// down the rows, 128 at a time in ROOMS of two slices; each half of 64 rows belongs to the warpgroup that comes next, which
// multiplies it by 64 columns after the other (with SPREAD, two warpgroups share the columns). a is copied as it lies: the first
// tiles by 16 bytes a thread, the others by a tensor map that each block makes for itself. The columns of b lie in an order in
// which a thread's sums are neighbours in c; with STORE 1, pairs of lanes swap halves, so that whole lines of c are stored.
constexpr int ROOM_BYTES = 32768, PAIRS = SLICES / 2, B_SLICE = STRIP * 128, COLUMNS = STRIP / 64;
constexpr int GROUPS = HANDS / SPREAD, HELPERS = BARE ? 0 : 128;
static_assert(!DEEP || SLICES == 4 && !THIN, "four slices of a in registers");
constexpr bool LATE = !DEEP && SLICES == 4 && COLUMNS == SPREAD;  // a's second half is loaded when the first has been multiplied
constexpr int SETS_OF_A = THIN ? 1 : LATE ? 2 : SLICES;

__device__ void describe_box(uint32_t map, const void *from, uint64_t row, int wide, int high, int box_wide, int box_high, bool words) {
  for (int i = 0; i < 8; ++i) asm volatile("st.shared.v4.b32 [%0], {0, 0, 0, 0};" ::"r"(map + 16 * i) : "memory");
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(from) : "memory");
  asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(map), "r"(box_wide) : "memory");
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(box_high) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(map), "r"(wide) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(high) : "memory");
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(map), "l"(row) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, 1;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(map) : "memory");
  if (words)
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 1;" ::"r"(map) : "memory");
  else
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(map) : "memory");
  asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(map) : "memory");
}

__device__ __forceinline__ void publish(uint8_t *map, uint32_t draft) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map), "r"(draft)
      : "memory");
}

// As `start`, the descriptors in 32 bits.
__device__ __forceinline__ void start_strip(float (&d)[32], const uint32_t (&a)[4][4], uint32_t there) {
  uint32_t low = (there & 0x3ffff) >> 4 | 1u << 16;
  keep(a);
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    uint64_t right;
    asm("mov.b64 %0, {%1, %2};" : "=l"(right) : "r"(low + 2 * x), "r"(64u | 1u << 30));
    multiply(d, a[x], right, x);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void copy16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// 8 columns of c, in a row. No branch: the matrix unit's registers must not be in use across one.
__device__ __forceinline__ void put8(__nv_bfloat16 *to, uint4 x, int really) {
  if (CS)
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.cs.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(really) : "memory");
  else
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(really) : "memory");
}

// As turn_chunk, 16 of k by 16 columns of b, but put where `strips` wants the columns: of 8 neighbours, the first and the second
// are columns 0 and 1 of a lane's first 8 columns of the matrix unit, the next two those of its second 8, and so on.
// `meanwhile` is done while the bytes are on their way.
template <class Do>
__device__ __forceinline__ void turn_strip(const uint8_t *from, int stride, int chunk, int group, uint32_t to, Do &&meanwhile) {
  uint4 found[16];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[i].x), "=r"(found[i].y), "=r"(found[i].z), "=r"(found[i].w)
                 : "l"(from + (size_t)i * stride));
  meanwhile();
  int high = STORE == 0 ? group / 2 % 2 : group % 2, low = STORE == 0 ? group % 2 : group / 2 % 2;
  to += high * 4096 + low * 512;
  chunk ^= low * 4;
#pragma unroll
  for (int four = 0; four < 4; ++four) {
    uint32_t words[4][4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint4 x = found[2 * t + i % 2 + i / 2 * 8];
        words[t][i] = four == 0 ? x.x : four == 1 ? x.y : four == 2 ? x.z : x.w;
      }
      turn(words[t]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int column = 4 * four + j, row = column % 8 / 2 * 8 + column / 8 * 2 + column % 2;
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + row * 128 + ((chunk ^ row % 8) << 4)), "r"(words[0][j]),
                   "r"(words[1][j]), "r"(words[2][j]), "r"(words[3][j])
                   : "memory");
    }
  }
}

extern "C" __global__ void __launch_bounds__(128 * HANDS + HELPERS, 1)
    strips(const uint8_t *a, const uint8_t *b, const float *a_scale, const float *b_scale, uint8_t *maps, __nv_bfloat16 *c, int m,
           int n, int k) {
  if (FORM != 3) return;
  extern __shared__ uint8_t memory[];
  __shared__ alignas(128) uint8_t drafts[256];
  __shared__ alignas(8) uint64_t barriers[2 * ROOMS + 1];
  __shared__ float by_columns[SLICES * STRIP / 32];
  uint32_t right = ((uint32_t)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  uint32_t rooms = right + SLICES * B_SLICE, scales = rooms + ROOMS * ROOM_BYTES, out = scales + ROOMS * 1024;
  uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers), empty = full + 8 * ROOMS, described = empty + 8 * ROOMS;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int strips_ = n / STRIP, parts = gridDim.x / strips_, strip = blockIdx.x % strips_, first = blockIdx.x / strips_;
  int j0 = strip * STRIP, tiles = ((m + 127) / 128 - first + parts - 1) / parts;
  if (!BARE && threadIdx.x == 0) {
    for (int s = 0; s < ROOMS; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s), "r"(8 * SPREAD) : "memory");
    }
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(described) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  if (!BARE) __syncthreads();

  // 128 rows by 256 of k, and their scales: `many` threads of eight neighbours each copy rows of 128 bytes.
  auto copy_room = [&](int q, int thread, auto threads) {
    constexpr int many = decltype(threads)::value;
    int i = (first + q / PAIRS * parts) * 128, s = q % PAIRS * 2, chunk = thread % 8, row = thread / 8;
    if (q / PAIRS < tiles && i + chunk * 16 < m) {
      const uint8_t *from = a + (size_t)(s * 128 + row) * m + i + chunk * 16;
      uint32_t to = rooms + q * ROOM_BYTES;
      constexpr int step = many / 8;
      if constexpr (step % 8 == 0) {
        to += row * 128 + ((chunk ^ row % 8) << 4);
#pragma unroll
        for (int x = 0; x < (256 + step - 1) / step; ++x)
          if (256 % step == 0 || row + x * step < 256) copy16(to + x * step * 128, from + (size_t)(x * step) * m);
      } else {
#pragma unroll 4
        for (; row < 256; row += step, from += (size_t)step * m) copy16(to + row * 128 + ((chunk ^ row % 8) << 4), from);
      }
    }
    if (q / PAIRS < tiles && thread < 64 && i + thread % 32 * 4 < m)
      copy16(scales + q * 1024 + thread * 16, a_scale + (size_t)(s + thread / 32) * m + i + thread % 32 * 4);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  if (!BARE && warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
    uint8_t *map = maps + blockIdx.x * 256;
    uint32_t draft = (uint32_t)__cvta_generic_to_shared(drafts);
    if (warp == 0) {
      if (tiles > FIRST) {
        if (lane == 0) describe_box(draft, a, m, m, k, 128, 128, false);
        __syncwarp();
        publish(map, draft);
        if (lane == 0) {
          asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
          uint32_t slot = FIRST * PAIRS % ROOMS, phase = FIRST * PAIRS / ROOMS % 2 ^ 1;
          int i = (first + FIRST * parts) * 128;
          for (int t = FIRST; t < tiles; ++t, i += parts * 128) {
            int bytes = min(128, m - i) * 4;
#pragma unroll
            for (int s = 0; s < SLICES; s += 2) {
              wait(empty + 8 * slot, phase);
              expect(full + 8 * slot, ROOM_BYTES + 2 * bytes);
              fetch_a(rooms + slot * ROOM_BYTES, map, i, s * 128, full + 8 * slot, 0);
              fetch_a(rooms + slot * ROOM_BYTES + 16384, map, i, s * 128 + 128, full + 8 * slot, 0);
              fetch(scales + slot * 1024, a_scale + (size_t)s * m + i, bytes, full + 8 * slot);
              fetch(scales + slot * 1024 + 512, a_scale + (size_t)(s + 1) * m + i, bytes, full + 8 * slot);
              if (++slot == ROOMS) slot = 0, phase ^= 1;
            }
          }
        }
      }
    } else {
      int thread = threadIdx.x - 32;
      if (FIRST > 0) {
        for (int q = 0; q < FIRST * PAIRS; ++q) copy_room(q, thread, std::integral_constant<int, 96>{});
      }
      if (STORE == 2 && warp == 1) {
        if (lane == 0) describe_box(draft + 128, c, (uint64_t)n * 2, n, m, 64, 16, true);
        __syncwarp();
        publish(map + 128, draft + 128);
        __syncwarp();
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(described) : "memory");
      }
      if (FIRST > 0) {
#pragma unroll
        for (int q = 0; q < FIRST * PAIRS; ++q) {
          if (q == FIRST * PAIRS - 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
          if (q == FIRST * PAIRS - 2) asm volatile("cp.async.wait_group 1;" ::: "memory");
          if (q == FIRST * PAIRS - 3) asm volatile("cp.async.wait_group 2;" ::: "memory");
          if (q == FIRST * PAIRS - 4) asm volatile("cp.async.wait_group 3;" ::: "memory");
          asm volatile("bar.sync 2, 96;" ::: "memory");
          if (thread == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(full + 8 * q) : "memory");
        }
      }
    }
  } else {
    bool copied = !BARE;
    auto copy_all = [&]() {
      if (copied) return;
      for (int q = 0; q < FIRST * PAIRS; ++q) copy_room(q, threadIdx.x, std::integral_constant<int, 128 * HANDS>{});
      copied = true;
    };
    if constexpr (!BARE) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS));
    }
    int blocks = (n + 127) / 128;
    int column = threadIdx.x - HELPERS;  // 32 columns' scale of b, asked for early
    float by_column = 0;
    static_assert(SLICES * STRIP / 32 <= 128 * HANDS, "one for a thread");
    if (column < SLICES * STRIP / 32)
      asm volatile("ld.global.nc.f32 %0, [%1];"
                   : "=f"(by_column)
                   : "l"(b_scale + column / (STRIP / 32) * blocks + (j0 + column % (STRIP / 32) * 32) / 128));
    for (int job = threadIdx.x - HELPERS; job < SLICES * STRIP / 2; job += 128 * HANDS) {
      int chunk = job % 8, s = job / 32 % SLICES, group = job / (32 * SLICES) * 4 + job / 8 % 4;
      if (SLICES * STRIP / 2 > 128 * HANDS && job + 128 * HANDS < SLICES * STRIP / 2) {  // the next job's bytes
        int next = job + 128 * HANDS, s = next / 32 % SLICES, group = next / (32 * SLICES) * 4 + next / 8 % 4;
        if (next / 8 % 4 == 0) {
#pragma unroll
          for (int i = 0; i < 16; ++i)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(b + (size_t)(s * 128 + chunk * 16 + i) * n + j0 + group * 16));
        }
      }
      turn_strip(b + (size_t)(s * 128 + chunk * 16) * n + j0 + group * 16, n, chunk, group, right + s * B_SLICE + group / 4 * 8192, copy_all);
    }
    copy_all();
    if (column < SLICES * STRIP / 32) by_columns[column] = by_column;
    if (BARE) asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(128 * HANDS) : "memory");

    int hand = (warp - HELPERS / 32) / 4, units = tiles * 2, unit = hand / SPREAD, p = hand % SPREAD;
    uint32_t from = lane * 128 + ((warp % 4 ^ lane % 8) << 4), quad = lane % 4, odd = lane / 4 % 2;
    uint32_t left[SETS_OF_A][4][4];
    float up[SLICES], low[SLICES];
    float sum[32], part[32];
#pragma unroll
    for (int x = 0; x < 32; ++x) sum[x] = part[x] = 0;
    auto load = [&](int unit, auto which) {  // slices 2 * pair and 2 * pair + 1 of 64 rows
      constexpr int pair = decltype(which)::value, at = LATE ? 0 : 2 * pair;
      uint32_t q = unit / 2 * PAIRS + pair, slot = q % ROOMS, half = unit % 2;
      bool real = !BARE && unit < units;
      if (real) wait(full + 8 * slot, q / ROOMS % 2);
      __syncwarp();
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(up[2 * pair + s]), "=f"(low[2 * pair + s])
                     : "r"(scales + slot * 1024 + s * 512 + half * 256 + warp % 4 * 64 + lane / 4 * 8)
                     : "memory");
        uint32_t here = rooms + slot * ROOM_BYTES + s * 16384 + (from ^ half << 6);
#pragma unroll
        for (int x = 0; x < 4; ++x) load_a(left[at + s][x], here + x * 4096);
      }
      // The room is given back once all that this warp reads of it has come. No product has sums of these bits.
      if constexpr (BARE) return;
      bool never = true;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        never &= __float_as_uint(low[2 * pair + s]) == 0x7fc12345u;
#pragma unroll
        for (int x = 0; x < 4; ++x) never &= left[at + s][x][0] == 0x7fc12345u;
      }
      __syncwarp();
      if (lane == 0 && real)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(empty + 8 * slot), "r"(never ? 2 : 1) : "memory");
    };
    uint32_t before = 0;
    auto load_thin = [&](int unit, int s) {  // one slice
      uint32_t q = unit / 2 * PAIRS + s / 2, slot = q % ROOMS, half = unit % 2;
      bool real = !BARE && unit < units;
      if (real && s % 2 == 0) wait(full + 8 * slot, q / ROOMS % 2);
      __syncwarp();
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(up[0]), "=f"(low[0])
                   : "r"(scales + slot * 1024 + s % 2 * 512 + half * 256 + warp % 4 * 64 + lane / 4 * 8)
                   : "memory");
      uint32_t here = rooms + slot * ROOM_BYTES + s % 2 * 16384 + (from ^ half << 6);
#pragma unroll
      for (int x = 0; x < 4; ++x) load_a(left[0][x], here + x * 4096);
      if (s % 2 == 0) before = __float_as_uint(low[0]);
      if (BARE || s % 2 == 0 || p + SPREAD < COLUMNS) return;  // given back after the last of the columns
      bool never = (__float_as_uint(low[0]) == 0x7fc12345u) & (before == 0x7fc12345u);
#pragma unroll
      for (int x = 0; x < 4; ++x) never &= left[0][x][0] == 0x7fc12345u;
      __syncwarp();
      if (lane == 0 && real)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(empty + 8 * slot), "r"(never ? 2 : 1) : "memory");
    };
    auto load_unit = [&](int unit) {
      if constexpr (THIN) {
        load_thin(unit, 0);
        return;
      }
      load(unit, std::integral_constant<int, 0>{});
      if constexpr (SLICES == 4 && !LATE && !DEEP) load(unit, std::integral_constant<int, 1>{});
    };
    auto begin = [&](int p) {
      uint32_t base = right + p * 8192;
      asm volatile("" : "+r"(base));  // else all addresses are kept in registers
      start_strip(sum, left[0], base);
      if constexpr (!THIN) start_strip(part, left[1], base + B_SLICE);
    };
    // c's factors: of the upper and the lower row, for the first and the last 32 sums of a thread
    auto scale = [&](int s, int p, float (&by)[2][2]) {
      float x, y;
      const float *table = by_columns + s * (STRIP / 32) + p * 2;
      if (STORE == 0)
        x = table[0], y = table[1];
      else
        x = y = table[quad / 2];
      int at = THIN ? 0 : s;
      by[0][0] = up[at] * x, by[0][1] = low[at] * x, by[1][0] = up[at] * y, by[1][1] = low[at] * y;
    };
    auto add = [&](int s, int p) {
      float by[2][2];
      scale(s, p, by);
#pragma unroll
      for (int x = 0; x < 32; ++x) sum[x] += part[x] * by[x / 16][x / 2 % 2];
    };
    constexpr int EACH = COLUMNS / SPREAD;
    load_unit(unit);
    begin(p);
    if (STORE == 2 && lane == 0) {
      wait(described, 0);
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps + blockIdx.x * 256 + 128) : "memory");
    }
    uint32_t buffer = 0, mine = out + (warp - HELPERS / 32) * (2048 * BUFFERS);
    // As often for all warpgroups: the matrix unit's instructions must not depend on what differs between warps.
    int step = 0;
    auto round = [&](auto more) {
      float total[32];
      if constexpr (DEEP) {
        // Pair by pair; a's first half for the next 64 rows comes while the second is multiplied, and the other way round.
        if (step == 0) load(unit, std::integral_constant<int, 1>{});
        {
          float by0[2][2], by1[2][2];
          scale(0, p, by0), scale(1, p, by1);
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          hold(sum), hold(part);
          keep(left[0]), keep(left[1]);
#pragma unroll
          for (int x = 0; x < 32; ++x) total[x] = sum[x] * by0[x / 16][x / 2 % 2] + part[x] * by1[x / 16][x / 2 % 2];
        }
        {
          uint32_t base = right + 2 * B_SLICE + p * 8192;
          asm volatile("" : "+r"(base));
          start_strip(sum, left[2 % SETS_OF_A], base);
          start_strip(part, left[3 % SETS_OF_A], base + B_SLICE);
        }
        float by2[2][2], by3[2][2];
        scale(2 % SLICES, p, by2), scale(3 % SLICES, p, by3);
        if constexpr (decltype(more)::value)
          if (step + 1 == EACH) load(unit + GROUPS, std::integral_constant<int, 0>{});
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(sum), hold(part);
        keep(left[2 % SETS_OF_A]), keep(left[3 % SETS_OF_A]);
#pragma unroll
        for (int x = 0; x < 32; ++x) total[x] += sum[x] * by2[x / 16][x / 2 % 2] + part[x] * by3[x / 16][x / 2 % 2];
      } else {
      {
        float by[2][2];
        scale(0, p, by);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(sum);
#pragma unroll
        for (int x = 0; x < 32; ++x) sum[x] *= by[x / 16][x / 2 % 2];
      }
      if constexpr (THIN) {
        keep(left[0]);
#pragma unroll
        for (int s = 1; s < SLICES; ++s) {
          load_thin(unit, s);
          uint32_t base = right + p * 8192;
          asm volatile("" : "+r"(base));
          start_strip(part, left[0], base + s * B_SLICE);
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          hold(part);
          keep(left[0]);
          add(s, p);
        }
      } else if constexpr (LATE) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(part);
        keep(left[0]), keep(left[1]);
        add(1, p);
        load(unit, std::integral_constant<int, 1>{});
      } else {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(part);
        keep(left[0]), keep(left[1]);
        add(1, p);
      }
      if constexpr (SLICES == 4 && !THIN) {
#pragma unroll
        for (int s = 2; s < 4; ++s) {
          uint32_t base = right + p * 8192;
          asm volatile("" : "+r"(base));
          start_strip(part, left[LATE ? s - 2 : s % SETS_OF_A], base + s * B_SLICE);
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          hold(part);
          keep(left[LATE ? s - 2 : s % SETS_OF_A]);
          add(s, p);
        }
      }
#pragma unroll
        for (int x = 0; x < 32; ++x) total[x] = sum[x];
      }
      uint4 x[2], y[2];  // of the upper row and of the lower one
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        float *w = total + 16 * t;
        x[t] = make_uint4(pack(w[0], w[1]), pack(w[4], w[5]), pack(w[8], w[9]), pack(w[12], w[13]));
        y[t] = make_uint4(pack(w[2], w[3]), pack(w[6], w[7]), pack(w[10], w[11]), pack(w[14], w[15]));
        asm volatile("" : "+r"(x[t].x), "+r"(x[t].y), "+r"(x[t].z), "+r"(x[t].w), "+r"(y[t].x), "+r"(y[t].y), "+r"(y[t].z), "+r"(y[t].w));
      }
      int row = (first + unit / 2 * parts) * 128 + unit % 2 * 64 + warp % 4 * 16, column = j0 + p * 64;
      bool done = unit >= units, fresh = ++step == EACH;
      p += SPREAD;
      if (fresh) p -= COLUMNS, unit += GROUPS, step = 0;
      if constexpr (AHEAD && decltype(more)::value) {
        if (fresh && !DEEP || THIN) load_unit(unit);
        begin(p);
      }
      if (done) row = m;
      if constexpr (STORE == 0) {
        row += lane / 4 * 2;
        int in = row < m;
        __nv_bfloat16 *to = c + (size_t)row * n + column + quad * 8;
        put8(to, x[0], in), put8(to + 32, x[1], in);
        put8(to + n, y[0], in), put8(to + n + 32, y[1], in);
      } else if constexpr (STORE == 1) {
        // lanes of even rows leave the last half of theirs to their neighbours, for the first half of those
        auto swap = [&](uint4 (&v)[2]) {
          uint32_t *v0 = (uint32_t *)&v[0], *v1 = (uint32_t *)&v[1];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t give = odd ? v0[i] : v1[i], stay = odd ? v1[i] : v0[i];
            uint32_t got = __shfl_xor_sync(~0u, give, 4);
            v0[i] = odd ? got : stay, v1[i] = odd ? stay : got;
          }
        };
        swap(x), swap(y);
        row += lane / 8 * 4;
        __nv_bfloat16 *to = c + (size_t)row * n + column + ((quad & 1) | odd << 1 | (quad >> 1) << 2) * 8;
        int in = row < m;  // m is a multiple of 16
        put8(to, x[0], in), put8(to + n, y[0], in);
        put8(to + 2 * (size_t)n, x[1], in), put8(to + 3 * (size_t)n, y[1], in);
      } else {
        if (row < m) {
        if (lane == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(BUFFERS - 1) : "memory");
        __syncwarp();
        uint32_t stage = mine + buffer * 2048;
        if (++buffer == BUFFERS) buffer = 0;
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          uint32_t place = (quad & 1) | t << 1 | (quad >> 1) << 2, r = lane / 4 * 2;
          asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(stage + r * 128 + ((place ^ r % 8) << 4)), "r"(x[t].x),
                       "r"(x[t].y), "r"(x[t].z), "r"(x[t].w)
                       : "memory");
          ++r;
          asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(stage + r * 128 + ((place ^ r % 8) << 4)), "r"(y[t].x),
                       "r"(y[t].y), "r"(y[t].z), "r"(y[t].w)
                       : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) {
          asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                           maps + blockIdx.x * 256 + 128),
                       "r"(column), "r"(row), "r"(stage)
                       : "memory");
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        }
      }
      if constexpr (!AHEAD && decltype(more)::value) {
        if (fresh && !DEEP || THIN) load_unit(unit);
        begin(p);
      }
    };
    for (int times = (units + GROUPS - 1) / GROUPS * EACH; times > 1; --times) round(std::true_type{});
    round(std::false_type{});
    if (STORE == 2 && lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
