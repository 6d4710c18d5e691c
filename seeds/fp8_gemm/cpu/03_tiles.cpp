// One kernel, many forms: every choice between the definition and a packed register-tile (or AMX)
// kernel is a tunable, so a search can walk the whole way. It starts near the definition.
//
// Costs known on an Intel core with AMX: fp32 FMA 214 GF/s; vdpbf16ps half of that (on Zen 5 it is
// twice the FMA rate); tdpbf16ps 3100 GF/s. fp8 -> bf16 is exact and so are the products, but a
// scale folded into a bf16 operand is not: with dot16 or amx, SCALE = operand is fast and wrong.
// So is a tile that is no divisor of 128 columns (NV or NT of 3) with SCALE = block: it takes
// one scale for columns of two scale blocks.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

enum { naive, ikj, dot, outer, amx };
enum { arith, table, bit, half, perm };
enum { scalar, vector };
enum { fp32, bf16 };
enum { block, operand };
enum { fresh, keep };
enum { shift, hardware };
enum { by_rows, by_columns };

constexpr int FORM = naive;    // tune: naive ikj dot outer amx | form: definition, row updates, dot-product tile, packed outer-product tile, matrix unit
constexpr int DECODE = table;  // tune: arith table bit half perm | decode: formula, 256 entries, fp32 shifts, fp16 conversion, byte permutes (AVX-512 VBMI)
constexpr int PACK = scalar;   // tune: scalar vector | pack: decode and copy single elements or whole vectors | if FORM != naive
constexpr int PANELS = 0;      // tune: 0 1 | pack: a as one wide matrix or in panels of MR rows | if FORM == outer
constexpr int SCALE = block;   // tune: block operand | fuse: scale every 128-deep partial sum, or the operands while packing | if FORM != naive
constexpr int DOT = fp32;      // tune: fp32 bf16 | precision: fp32 FMA or bf16 pair products (AVX-512 BF16) | if FORM == outer
constexpr int ROUND = shift;   // tune: shift hardware | precision: bf16 results by integer arithmetic, or by instruction where there is AVX-512 BF16 | if FORM != naive
constexpr int VL = 16;         // tune: 16 32 64 | vector: bytes of a vector | if FORM == ikj or FORM == dot or FORM == outer
constexpr int MR = 1;          // tune: 1 2 4 6 8 12 14 | tile: rows of the register tile | if FORM == ikj or FORM == dot or FORM == outer
constexpr int NV = 1;          // tune: 1 2 3 4 | tile: vectors in a row of the register tile | if FORM == dot or FORM == outer
constexpr int MT = 1;          // tune: 1 2 3 | tile: matrix-unit tiles of 16 rows | if FORM == amx
constexpr int NT = 1;          // tune: 1 2 3 4 | tile: matrix-unit tiles of 16 columns | if FORM == amx
constexpr int KC = 128;        // tune: 128 256 512 1024 8192 | block: depth of a slab of b (multiple of 128) | if FORM == outer or FORM == amx
constexpr int MC = 0;          // tune: 0 256 128 64 32 | block: rows of a that pass over a slab of b; 0 = all | if FORM == outer or FORM == amx
constexpr int FUSEB = 0;       // tune: 0 1 | fuse: pack all of b first, or each slab right before its use | if FORM == outer or FORM == amx
constexpr int GROUP = 1;       // tune: 1 2 4 | pack: vectors decoded side by side before the next k rows (64 bytes are a cache line) | if PACK == vector
constexpr int UNROLL = 1;      // tune: 1 2 4 8 | unroll: k steps in the inner loop's body | if FORM == outer
constexpr int PREFETCH = 0;    // tune: 0 4 8 16 32 | prefetch: k steps ahead in a (matrix unit: tiles ahead); 0 = none | if FORM == outer or FORM == amx
constexpr int THREADS = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 16 32 | threads: threads that share c
constexpr int SPLIT = by_columns;  // tune: by_columns by_rows | threads: what a turn is a share of; it packs the other operand whole | if THREADS != 1
constexpr int TURN = 64;       // tune: 16 32 64 128 256 | threads: rows or columns of a turn | if THREADS != 1
// flags: -fopenmp if NUM_THREADS > 1
constexpr int WORKSPACE = fresh;  // tune: fresh keep | memory: allocate in each call or keep between calls | if FORM != naive
// needs: amx_bf16 if FORM == amx
// needs: avx512_bf16 if DOT == bf16
// needs: avx512f if VL == 64
// needs: f16c if DECODE == half and PACK == vector
// needs: avx512vbmi if DECODE == perm and PACK == vector

#ifdef __AVX512F__
constexpr bool HAS_512 = true;
#else
constexpr bool HAS_512 = false;
#endif
#if defined(__AVX512VBMI__) && defined(__AVX512BW__)
constexpr bool HAS_VBMI = true;
#else
constexpr bool HAS_VBMI = false;
#endif
#ifdef __AVX512BF16__
constexpr bool HAS_BF16 = true;
#else
constexpr bool HAS_BF16 = false;
#endif
#ifdef __F16C__
constexpr bool HAS_F16C = true;
#else
constexpr bool HAS_F16C = false;
#endif
#ifdef __AMX_BF16__
constexpr bool HAS_AMX = true;
#else
constexpr bool HAS_AMX = false;
#endif

constexpr bool AMX = FORM == amx, PAIRS = AMX || (FORM == outer && DOT == bf16);
constexpr bool VECTORS = PACK == vector && FORM != naive;  // vectors decode
constexpr int VB = AMX ? 64 : VL, W = VB / 4;  // bytes and 4-byte lanes of a vector
constexpr int STEP = PAIRS ? 2 : 1;            // k values in one 4-byte unit
constexpr int TM = AMX ? 16 * MT : MR, TN = AMX ? 16 * NT : NV * W;

static_assert(FORM != amx || HAS_AMX, "FORM = amx needs AMX BF16");
static_assert(!AMX || MT * NT + MT + NT <= 8 || MT * NT + MT + 1 <= 8, "eight tile registers");
static_assert(FORM != outer || DOT != bf16 || (HAS_BF16 && VL == 64),
              "DOT = bf16 needs AVX-512 BF16 and VL = 64");
// Single elements take the table where half and perm are for vectors only.
static_assert(DECODE != half || HAS_F16C || !VECTORS, "DECODE = half needs F16C");
static_assert(DECODE != perm || (HAS_VBMI && VB == 64) || !VECTORS,
              "DECODE = perm needs AVX-512 VBMI and VL = 64");
static_assert(VB <= 32 || HAS_512 || FORM == naive, "VL = 64 needs AVX-512");

typedef float vf __attribute__((vector_size(VB), may_alias, aligned(4)));
typedef u32 vu __attribute__((vector_size(VB), may_alias, aligned(4)));
typedef int vi __attribute__((vector_size(VB)));
typedef u16 vh __attribute__((vector_size(VB / 2), may_alias, aligned(2)));
typedef u8 vb __attribute__((vector_size(VB / 4), may_alias, aligned(1)));

#ifdef __clang__
#define FULL _Pragma("clang loop unroll(full)")
#else
#define FULL _Pragma("GCC unroll 64")
#endif
#define INLINE static inline __attribute__((always_inline))
#if NUM_THREADS > 1
#define PER_THREAD thread_local
#else
#define PER_THREAD
#endif

// ---- decoding -------------------------------------------------------------------------------

constexpr float FIX = E4M3FNUZ ? 0x1p-11f : 0x1p-10f;  // an integer significand's unit at exponent 0
constexpr float SHIFT_FIX = E4M3FNUZ ? 0x1p119f : 0x1p120f, HALF_FIX = E4M3FNUZ ? 0x1p7f : 0x1p8f;

static float formula(u8 x) {
  int e = x >> 3 & 15, f = x & 7;
  if (E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f) return __builtin_nanf("");
  float v = (e ? 8 + f : f) * (float)(1 << (e ? e : 1)) * FIX;
  return x & 0x80 ? -v : v;
}

// fp32 with the exponent field of fp8: right after a multiplication, subnormals too. (A subnormal
// makes an fp32 subnormal on the way, which costs a slow microcode assist on Intel.)
static float shifted(u8 x) {
  float v = __builtin_bit_cast(float, (x & 0x7fu) << 20 | (x & 0x80u) << 24) * SHIFT_FIX;
  return (E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f) ? __builtin_nanf("") : v;
}

static float values[256];
static u8 low[128], high[128];  // the bytes of the bf16 of each magnitude, for perm

__attribute__((cold)) static void fill_tables() {
  for (int x = 0; x < 256; ++x) values[x] = formula(x);
  for (int x = 0; x < 128; ++x) {
    u32 v = __builtin_bit_cast(u32, values[x]);
    low[x] = v >> 16, high[x] = v >> 24;
  }
}

INLINE float value(u8 x) {
  return DECODE == arith ? formula(x) : DECODE == bit ? shifted(x) : values[x];
}

INLINE vf nan_fixed(vu x, vf v) {
  vu nan = (vu)(E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f);
  return (vf)((vu)v | (nan & 0x7fc00000));
}

// The fp16 with the same bits is the value times 2^-8 (fnuz: 2^-7); the conversion has no trouble
// with subnormals.
INLINE vf from_half(const u8 *p) {
#ifdef __F16C__
  if constexpr (W == 4) {
    typedef u16 v8h __attribute__((vector_size(16)));
    v8h h = {};
    for (int l = 0; l < 4; ++l) h[l] = (p[l] & 0x7f) << 7 | (p[l] & 0x80) << 8;
    vf v;
    asm("vcvtph2ps %1, %0" : "=x"(v) : "x"(h));
    return v * HALF_FIX;
  } else {
    vh x = __builtin_convertvector(*(const vb *)p, vh);
    vh h = (x & 0x7f) << 7 | (x & 0x80) << 8;
    vf v;
#ifdef __AVX512F__
    asm("vcvtph2ps %1, %0" : "=v"(v) : "v"(h));
#else
    asm("vcvtph2ps %1, %0" : "=x"(v) : "x"(h));
#endif
    return v * HALF_FIX;
  }
#else
  return vf{};
#endif
}

// W values that lie side by side.
INLINE vf decode(const u8 *p) {
  if (DECODE == table) {
    vf v;
    FULL for (int l = 0; l < W; ++l) v[l] = values[p[l]];
    return v;
  }
  vu x = __builtin_convertvector(*(const vb *)p, vu);
  if (DECODE == half) return nan_fixed(x, from_half(p));
  if (DECODE == bit)
    return nan_fixed(x, (vf)((x & 0x7f) << 20 | (x & 0x80) << 24) * SHIFT_FIX);
  vu e = x >> 3 & 15, normal = (vu)(e != 0);
  vu scaled = ((x & 7) | (normal & 8)) << (e - (normal & 1));
  vf v = __builtin_convertvector((vi)scaled, vf) * (2 * FIX);
  return nan_fixed(x, (vf)((vu)v | (x & 0x80) << 24));
}

// Four k rows of W columns as bf16 pairs: two[0] = rows 0 and 1, two[1] = rows 2 and 3.
INLINE void permuted(const u8 *p, long ld, vu *two) {
#if defined(__AVX512VBMI__)
  typedef u8 v64 __attribute__((vector_size(64), may_alias, aligned(1)));
  typedef u8 v16 __attribute__((vector_size(16), may_alias, aligned(1)));
  // Byte i of the gathered rows goes where interleaving with the high bytes puts it in order.
  static const struct Order {
    u8 at[64] = {};
    constexpr Order() {
      for (int i = 0; i < 64; ++i) {
        int lane = i / 16, hi = i % 16 / 8, col = lane * 4 + i % 8 / 2;
        at[i] = (hi * 2 + i % 2) * 16 + col;
      }
    }
  } order;
  v64 x;  // broadcast and inserts from memory need no shuffle port
  asm("vbroadcasti32x4 %1, %0" : "=v"(x) : "m"(*(const v16 *)p));
  asm("vinserti32x4 $1, %1, %0, %0" : "+v"(x) : "m"(*(const v16 *)(p + ld)));
  asm("vinserti32x4 $2, %1, %0, %0" : "+v"(x) : "m"(*(const v16 *)(p + 2 * ld)));
  asm("vinserti32x4 $3, %1, %0, %0" : "+v"(x) : "m"(*(const v16 *)(p + 3 * ld)));
  asm("vpermb %0, %1, %0" : "+v"(x) : "v"(*(const v64 *)order.at));
  v64 lo = x, hi = x;
  asm("vpermi2b %2, %1, %0" : "+v"(lo) : "v"(*(const v64 *)low), "v"(*(const v64 *)(low + 64)));
  asm("vpermi2b %2, %1, %0" : "+v"(hi) : "v"(*(const v64 *)high), "v"(*(const v64 *)(high + 64)));
  if (E4M3FNUZ) {  // the one NaN is "minus zero"
    v64 nan = (v64)(x == 0x80);
    lo |= nan & 0xc0, hi |= nan & 0x7f;
  }
  hi |= x & 0x80;
  asm("vpunpcklbw %2, %1, %0" : "=v"(two[0]) : "v"(lo), "v"(hi));
  asm("vpunpckhbw %2, %1, %0" : "=v"(two[1]) : "v"(lo), "v"(hi));
#endif
}

INLINE vu nearest(vf v) {  // bf16 in the low half of each lane
  vu u = (vu)v, r = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = (vu)(v != v);
  return (r & ~nan) | (nan & 0x7fc0);
}

INLINE vu rounded_pair(vf even, vf odd) {
#ifdef __AVX512BF16__
  if constexpr (ROUND == hardware && VB == 64) {
    static const struct Order {
      u16 at[32] = {};
      constexpr Order() {
        for (int i = 0; i < 32; ++i) at[i] = i / 2 + i % 2 * 16;
      }
    } order;
    vu v;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(v) : "v"(even), "v"(odd));
    asm("vpermw %0, %1, %0" : "+v"(v) : "v"(*(const vu *)order.at));
    return v;
  }
#endif
  return nearest(even) | nearest(odd) << 16;
}

static u16 nearest(float v) {
  u32 u = __builtin_bit_cast(u32, v);
  return v != v ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// ---- packing --------------------------------------------------------------------------------

struct Operand {
  const u8 *x;
  long ld;  // x[k * ld + row]
  const float *scale;
  long scale_row, scale_ld, per;  // scale[row / per * scale_row + k / 128 * scale_ld]
  long rows;
};

INLINE float scale_at(const Operand &o, long r, long k) {
  return o.scale[r / o.per * o.scale_row + k / 128 * o.scale_ld];
}

INLINE vf scales(const Operand &o, long r, long k) {
  if (o.per >= W || o.scale_row != 1) {
    vf s;
    FULL for (int l = 0; l < W; ++l) s[l] = scale_at(o, r + l, k);
    return s;
  }
  return *(const vf *)(o.scale + r + k / 128 * o.scale_ld);
}

// Four k rows from k on, W columns from r on, as 4-byte units: four fp32 rows or two bf16 pairs.
INLINE void decode4(const Operand &o, long r, long k, vu *out) {
  const u8 *p = o.x + k * o.ld + r;
  vf row[4];
  if (DECODE == perm) {
    vu two[2];
    permuted(p, o.ld, two);
    if (PAIRS && SCALE == block) {
      out[0] = two[0], out[1] = two[1];
      return;
    }
    FULL for (int i = 0; i < 4; ++i)
      row[i] = (vf)(i % 2 ? two[i / 2] & 0xffff0000 : two[i / 2] << 16);
  } else {
    FULL for (int i = 0; i < 4; ++i) row[i] = decode(p + i * o.ld);
  }
  if (SCALE == operand) {
    float one = scale_at(o, r, k);
    vf s = o.per == 1 ? scales(o, r, k) : one + vf{};
    FULL for (int i = 0; i < 4; ++i) row[i] *= s;
  }
  FULL for (int i = 0; i < 4; ++i) {
    if (!PAIRS) out[i] = (vu)row[i];
    else if (SCALE == block && i % 2 == 0) out[i / 2] = (vu)row[i] >> 16 | (vu)row[i + 1];
    else if (i % 2 == 0) out[i / 2] = rounded_pair(row[i], row[i + 1]);
  }
}

// Units of columns [r0, r1) and k in [k0, k1), zero up to `filled` columns, in panels of `width`.
__attribute__((noinline)) static void pack(u32 *out, long width, const Operand &o, long r0,
                                           long r1, long filled, long k0, long k1) {
  long steps = (k1 - k0) / STEP, r = r0;
  auto top = [=](long column) {  // where a column's first unit goes; the next is `width` further
    return out + column / width * steps * width + column % width;
  };
  while (PACK == vector && r + W <= r1) {
    u32 *to[GROUP * W];
    long vectors = (r1 - r) / W < GROUP ? (r1 - r) / W : GROUP;
    for (long l = 0; l < vectors * W; ++l) to[l] = top(r - r0 + l);
    for (long k = k0, s = 0; k < k1; k += 4, s += 4 / STEP * width)
      for (long g = 0; g < vectors; ++g) {
        vu v[4];
        decode4(o, r + g * W, k, v);
        FULL for (int i = 0; i < 4 / STEP; ++i) {
          if (width % W == 0) *(vu *)(to[g * W] + s + i * width) = v[i];
          else for (int l = 0; l < W; ++l) to[g * W + l][s + i * width] = v[i][l];
        }
      }
    r += vectors * W;
  }
  for (; r < r0 + filled; ++r) {
    u32 *to = top(r - r0);
    for (long k = k0; k < k1; k += STEP, to += width) {
      u32 unit = 0;
      for (long t = 0; r < r1 && t < STEP; ++t) {
        float v = value(o.x[(k + t) * o.ld + r]);
        if (SCALE == operand) v *= scale_at(o, r, k);
        unit |= PAIRS ? (u32)nearest(v) << 16 * t : __builtin_bit_cast(u32, v);
      }
      *to = unit;
    }
  }
}

// 16 columns x 16 pairs -> 16 rows of 32 consecutive k, the matrix unit's left operand.
template <class V> INLINE void transpose(V *x) {
  if constexpr (sizeof(V) == 64) {
    V y[16];
    FULL for (int i = 0; i < 16; i += 2) {
      y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
      y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    FULL for (int g = 0; g < 16; g += 4)
      FULL for (int i = 0; i < 2; ++i) {
        x[g + 2 * i] = __builtin_shufflevector(y[g + i], y[g + i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        x[g + 2 * i + 1] = __builtin_shufflevector(y[g + i], y[g + i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
      }
    FULL for (int i = 0; i < 4; ++i)  // now 4x4 blocks of 128-bit lanes
      FULL for (int h = 0; h < 2; ++h) {
        V p = x[i + 8 * h], q = x[i + 8 * h + 4];
        y[i + 8 * h] = __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        y[i + 8 * h + 4] = __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
      }
    FULL for (int i = 0; i < 4; ++i)
      FULL for (int h = 0; h < 2; ++h) {
        V p = y[i + 4 * h], q = y[i + 4 * h + 8];
        x[i + 4 * h] = __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        x[i + 4 * h + 8] = __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
      }
  }
}

static void pack_rows(u32 *out, const Operand &o, long filled, long k) {
  for (long r = 0; r < filled; r += 16)
    for (long kk = 0; kk < k; kk += 32, out += 256) {
      if (PACK == vector && r + 16 <= o.rows) {
        alignas(64) vu x[16];
        FULL for (int i = 0; i < 8; ++i) decode4(o, r, kk + 4 * i, x + 2 * i);
        transpose(x);
        // After the lane exchange row 4q + p of the tile sits at this place.
        FULL for (int i = 0; i < 16; ++i) *(vu *)(out + i * 16) = x[(i % 4) + (i / 4) % 2 * 4 + i / 8 * 8];
        continue;
      }
      u32 t[256];
      pack(t, 16, o, r, r + 16 < o.rows ? r + 16 : o.rows, 16, kk, kk + 32);
      for (int i = 0; i < 256; ++i) out[i] = t[i % 16 * 16 + i / 16];
    }
}

// ---- tiles ----------------------------------------------------------------------------------

struct Scales {  // of a tile's rows and of its first column's block
  const float *a, *b;
  long a_ld, b_ld;
};

INLINE vf multiply_add(vf acc, vu x, vu y) {
#ifdef __AVX512BF16__
  if (PAIRS) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
  }
#endif
  return acc + (vf)x * (vf)y;
}

// sum[MR][TN] += a[k][MR] * b[k][TN] over `blocks` blocks of 128.
__attribute__((noinline)) static void vector_tile(const u32 *a, long lda, const u32 *b, float *sum, long blocks, Scales s) {
  vf acc[MR][NV];
  FULL for (int i = 0; i < MR; ++i)
    FULL for (int v = 0; v < NV; ++v) acc[i][v] = *(vf *)(sum + i * TN + v * W);
  if (SCALE == block) FULL for (auto &row : acc) FULL for (vf &x : row) x = vf{};
  for (long kb = 0; kb < blocks; ++kb) {
    for (int step = 0; step < 128 / STEP; step += UNROLL) {
      FULL for (int u = 0; u < UNROLL; ++u, a += lda, b += TN) {
        if (PREFETCH) __builtin_prefetch(a + PREFETCH * lda);
        vu y[NV];
        FULL for (int v = 0; v < NV; ++v) y[v] = *(const vu *)(b + v * W);
        FULL for (int i = 0; i < MR; ++i)
          FULL for (int v = 0; v < NV; ++v) acc[i][v] = multiply_add(acc[i][v], a[i] + vu{}, y[v]);
      }
    }
    if (SCALE == block)
      FULL for (int i = 0; i < MR; ++i)
        FULL for (int v = 0; v < NV; ++v) {
          *(vf *)(sum + i * TN + v * W) += acc[i][v] * (s.a[kb * s.a_ld + i] * s.b[kb * s.b_ld]);
          acc[i][v] = vf{};
        }
  }
  if (SCALE == operand)
    FULL for (int i = 0; i < MR; ++i)
      FULL for (int v = 0; v < NV; ++v) *(vf *)(sum + i * TN + v * W) = acc[i][v];
}

#ifdef __AMX_BF16__
template <int T> INLINE void tile_zero() { asm volatile("tilezero %%tmm%c0" ::"i"(T)); }
template <int T> INLINE void tile_load(const void *p, long ld) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(ld), "i"(T) : "memory");
}
template <int T> INLINE void tile_store(void *p, long ld) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(ld), "i"(T) : "memory");
}
template <int C, int A, int B> INLINE void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
template <int I, int N, class F> INLINE void each(F f) {
  if constexpr (I < N) {
    f.template operator()<I>();
    each<I + 1, N>(f);
  }
}

// Left tiles and sums stay in registers; right tiles get their own while there are enough.
constexpr int LEFT = MT * NT, RIGHT = LEFT + MT;
constexpr bool ONE_RIGHT = RIGHT + NT > 8;

__attribute__((noinline)) static void matrix_tile(const u32 *a, long a_panel, const u32 *b,
                                                  long b_panel, float *sum, long blocks, Scales s) {
  alignas(64) static PER_THREAD float part[TM * TN];
  if (SCALE == operand)
    each<0, MT * NT>([&]<int T>() { tile_load<T>(sum + T / NT * 16 * TN + T % NT * 16, TN * 4L); });
  for (long kb = 0; kb < blocks; ++kb, s.a += s.a_ld, s.b += s.b_ld) {
    if (SCALE == block) each<0, MT * NT>([&]<int T>() { tile_zero<T>(); });
    FULL for (int step = 0; step < 4; ++step, a += 256, b += 256) {
      if (PREFETCH)
        FULL for (int t = 0; t < MT; ++t)
          FULL for (int l = 0; l < 16; ++l)
            __builtin_prefetch(a + t * a_panel + PREFETCH * 256 + l * 16);
      each<0, MT>([&]<int I>() { tile_load<LEFT + I>(a + I * a_panel, 64); });
      each<0, NT>([&]<int J>() {
        constexpr int R = ONE_RIGHT ? RIGHT : RIGHT + J;
        tile_load<R>(b + J * b_panel, 64);
        each<0, MT>([&]<int I>() { tile_dot<I * NT + J, LEFT + I, R>(); });
      });
    }
    if (SCALE == operand) continue;
    each<0, MT * NT>(
        [&]<int T>() { tile_store<T>(part + T / NT * 16 * TN + T % NT * 16, TN * 4L); });
    for (int i = 0; i < TM; ++i)
      FULL for (int j = 0; j < TN; j += 16)
        *(vf *)(sum + i * TN + j) += *(vf *)(part + i * TN + j) * (s.a[i] * *s.b);
  }
  if (SCALE == operand)
    each<0, MT * NT>([&]<int T>() { tile_store<T>(sum + T / NT * 16 * TN + T % NT * 16, TN * 4L); });
}

// The kernel gives tile registers only on request; the request holds for the process.
static void tiles_on() {
  static bool asked;
  long result = 158;  // arch_prctl
  if (!asked)
    asm volatile("syscall" : "+a"(result) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  asked = true;
  alignas(64) u8 config[64] = {1};
  for (int t = 0; t < 8; ++t) config[16 + 2 * t] = 64, config[48 + t] = 16;
  asm volatile("ldtilecfg %0" ::"m"(config));
}
static void tiles_off() { asm volatile("tilerelease"); }
#else
static void matrix_tile(const u32 *, long, const u32 *, long, float *, long, Scales) {}
static void tiles_on() {}
static void tiles_off() {}
#endif

static void write_row(u16 *c, const float *sum, long count) {
  long j = 0;
#ifdef __AVX512BF16__
  if constexpr (ROUND == hardware && VB == 64)
    for (; j + W <= count; j += W) {
      vh h;
      asm("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(*(const vf *)(sum + j)));
      *(vh *)(c + j) = h;
    }
#endif
  for (; j + W <= count; j += W)
    *(vh *)(c + j) = __builtin_convertvector(nearest(*(const vf *)(sum + j)), vh);
  for (; j < count; ++j) c[j] = nearest(sum[j]);
}

// ---- forms ----------------------------------------------------------------------------------

struct Task {
  Operand a, b;
  u16 *c;
  long ldc, m, n, k;
};

static long up(long x, long unit) { return (x + unit - 1) / unit * unit; }

struct Space {  // 64-byte aligned pieces of one allocation
  u8 *base = 0;
  long have = 0, used = 0;
  void need(long bytes) {
    used = 0;
    if (bytes <= have) return;
    __builtin_free(base);
    base = (u8 *)__builtin_malloc(bytes + 64);
    have = bytes;
  }
  template <class T> T *take(long count) {
    T *p = (T *)(up((u64)base, 64) + used);
    used += up(count * sizeof(T), 64);
    return p;
  }
};

INLINE void run_naive(const Task &t, long a_row, long b_row, long c_col) {
  for (long i = 0; i < t.m; ++i)
    for (long j = 0; j < t.n; ++j) {
      float sum = 0;
      for (long kb = 0; kb < t.k; kb += 128) {
        float part = 0;
        for (long k = kb; k < kb + 128; ++k)
          part += value(t.a.x[i * a_row + k * t.a.ld]) * value(t.b.x[j * b_row + k * t.b.ld]);
        sum += part * scale_at(t.a, i, kb) * scale_at(t.b, j, kb);
      }
      t.c[i * t.ldc + j * c_col] = nearest(sum);
    }
}

// Strides other than the task's own: right, not fast, and not worth the compiler's time.
__attribute__((cold, noinline)) static void run_unusual(const Task &t, const long *st) {
  run_naive(t, st[0], st[2], st[9]);
}

// Row updates on packed fp32 rows of all n columns; MR rows share a row of b.
static void run_ikj(const Task &t, Space &space) {
  long n = up(t.n, W), m = up(t.m, MR);
  space.need((m * t.k + n * t.k + n * MR) * 4 + 256);
  u32 *a = space.take<u32>(m * t.k), *b = space.take<u32>(n * t.k);
  float *sum = space.take<float>(n * MR);
  pack(a, m, t.a, 0, t.m, m, 0, t.k);
  pack(b, n, t.b, 0, t.n, n, 0, t.k);
  for (long i = 0; i < m; i += MR) {
    for (long j = 0; j < n * MR; ++j) sum[j] = 0;
    for (long k = 0; k < t.k; ++k)
      for (long j = 0; j < n; j += W) {
        vf y = *(const vf *)(b + k * n + j);
        float tail = SCALE == block ? scale_at(t.b, j < t.n ? j : t.n - 1, k) : 1;
        FULL for (int u = 0; u < MR; ++u) {
          float x = __builtin_bit_cast(float, a[k * m + i + u]);
          if (SCALE == block) x *= tail * scale_at(t.a, i + u < t.m ? i + u : t.m - 1, k);
          *(vf *)(sum + u * n + j) += y * x;
        }
      }
    for (long u = 0; u < MR && i + u < t.m; ++u)
      write_row(t.c + (i + u) * t.ldc, sum + u * n, t.n);
  }
}

// Dot products along k, which must first be made contiguous.
static void run_dot(const Task &t, Space &space) {
  long n = up(t.n, NV), m = up(t.m, MR);
  space.need((m + n) * t.k * 4 + 128);
  float *a = space.take<float>(m * t.k), *b = space.take<float>(n * t.k);
  pack((u32 *)a, 1, t.a, 0, t.m, m, 0, t.k);
  pack((u32 *)b, 1, t.b, 0, t.n, n, 0, t.k);
  for (long j = 0; j < n; j += NV)
    for (long i = 0; i < m; i += MR) {
      float sum[MR][NV] = {};
      for (long kb = 0; kb < t.k; kb += 128) {
        vf acc[MR][NV] = {};
        for (long k = kb; k < kb + 128; k += W)
          FULL for (int u = 0; u < MR; ++u)
            FULL for (int v = 0; v < NV; ++v)
              acc[u][v] += *(vf *)(a + (i + u) * t.k + k) * *(vf *)(b + (j + v) * t.k + k);
        FULL for (int u = 0; u < MR; ++u)
          FULL for (int v = 0; v < NV; ++v) {
            float total = 0, s = 1;
            FULL for (int l = 0; l < W; ++l) total += acc[u][v][l];
            if (SCALE == block && i + u < t.m && j + v < t.n)
              s = scale_at(t.a, i + u, kb) * scale_at(t.b, j + v, kb);
            sum[u][v] += total * s;
          }
      }
      for (long u = 0; u < MR && i + u < t.m; ++u)
        write_row(t.c + (i + u) * t.ldc + j, sum[u], NV < t.n - j ? NV : t.n - j);
    }
}

// Packed panels: for each slab of b (TN columns, KC deep), all rows of a block of a.
static void run_tiles(const Task &t, Space &space) {
  long m = up(t.m, TM), n = up(t.n, TN), steps = t.k / STEP;
  long wide = AMX ? 16 : PANELS ? MR : m + 16;  // +16: no power of two between rows
  long block_rows = MC == 0 ? m : MC < TM ? TM : MC / TM * TM, group = AMX ? 16 : TN;
  long slab = KC < t.k ? KC : t.k, b_units = FUSEB ? slab / STEP * TN : steps * n;
  long a_units = AMX || PANELS ? m * steps : wide * steps, rows = block_rows < m ? block_rows : m;
  space.need((a_units + b_units + rows * TN + t.k / 128 * m) * 4 + 1024);
  u32 *a = space.take<u32>(a_units), *b = space.take<u32>(b_units);
  float *sum = space.take<float>(rows * TN), *scale = space.take<float>(t.k / 128 * m);
  for (long kb = 0; kb < t.k / 128; ++kb)  // a's scales with zeros for the rows that fill a tile
    for (long i = 0; i < m; ++i)
      scale[kb * m + i] = i < t.m ? t.a.scale[i + kb * t.a.scale_ld] : 0;
  if (AMX) pack_rows(a, t.a, m, t.k), tiles_on();
  else pack(a, wide, t.a, 0, t.m, PANELS ? m : wide, 0, t.k);
  if (!FUSEB)
    for (long k = 0; k < t.k; k += slab)
      pack(b + k / STEP * n, group, t.b, 0, t.n, n, k, k + slab < t.k ? k + slab : t.k);
  for (long i0 = 0; i0 < m; i0 += block_rows)
    for (long j = 0; j < n; j += TN) {
      long i1 = i0 + block_rows < m ? i0 + block_rows : m, columns = TN < t.n - j ? TN : t.n - j;
      for (long x = 0; x < (i1 - i0) * TN; ++x) sum[x] = 0;
      for (long k = 0; k < t.k; k += slab) {
        long depth = k + slab < t.k ? slab : t.k - k, units = depth / STEP, blocks = depth / 128;
        const u32 *from = FUSEB ? b : b + k / STEP * n + j * units;
        const float *column = t.b.scale + j / 128 * t.b.scale_row + k / 128 * t.b.scale_ld;
        if (FUSEB) pack(b, group, t.b, j, j + columns, TN, k, k + depth);
        for (long i = i0; i < i1; i += TM) {
          Scales s = {scale + k / 128 * m + i, column, m, t.b.scale_ld};
          float *out = sum + (i - i0) * TN;
          const u32 *rows = AMX || PANELS ? a + i * steps + k / STEP * wide : a + i + k / STEP * wide;
          if (AMX) matrix_tile(rows, steps * 16, from, units * 16, out, blocks, s);
          else vector_tile(rows, wide, from, out, blocks, s);
        }
      }
      for (long i = i0; i < i1 && i < t.m; ++i)
        write_row(t.c + i * t.ldc + j, sum + (i - i0) * TN, columns);
    }
  if (AMX) tiles_off();
}

#if NUM_THREADS > 1
static void share(const u8 *a, const u8 *b, const float *a_scale, const float *b_scale, u16 *c, long m, long n,
                  long k, const long *st) {
#else
extern "C" void custom_kernel(const u8 *a, const u8 *b, const float *a_scale, const float *b_scale,
                              u16 *c, long m, long n, long k, const long *st) {
#endif
  static PER_THREAD Space space;
  Task t = {{a, st[1], a_scale, st[4], st[5], 1, m}, {b, st[3], b_scale, st[6], st[7], 128, n}, c,
            st[8], m, n, k};
  if (!values[1]) fill_tables();
  bool usual = st[0] == 1 && st[2] == 1 && st[4] == 1 && st[9] == 1;
  if (FORM == naive) return run_naive(t, st[0], st[2], st[9]);
  if (!usual) return run_unusual(t, st);
  if (FORM == ikj) run_ikj(t, space);
  else if (FORM == dot) run_dot(t, space);
  else run_tiles(t, space);
  if (WORKSPACE == fresh) {
    __builtin_free(space.base);
    space = Space();
  }
}

#if NUM_THREADS > 1
static_assert(THREADS <= NUM_THREADS, "more THREADS than cores");

extern "C" void custom_kernel(const u8 *a, const u8 *b, const float *a_scale, const float *b_scale,
                              u16 *c, long m, long n, long k, const long *st) {
  if (!values[1]) fill_tables();
  const long whole = SPLIT == by_rows ? m : n;
#pragma omp parallel for num_threads(THREADS) schedule(dynamic)
  for (long i = 0; i < whole; i += TURN) {
    long count = TURN < whole - i ? TURN : whole - i;
    if (SPLIT == by_rows) share(a + i * st[0], b, a_scale + i * st[4], b_scale, c + i * st[8], count, n, k, st);
    else  // a turn lies in one block of 128 columns, or begins with one
      share(a, b + i * st[2], a_scale, b_scale + i / 128 * st[6], c + i * st[9], m, count, k, st);
  }
}
#endif
