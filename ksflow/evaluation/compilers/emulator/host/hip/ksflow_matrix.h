// 8-bit floats and the matrix instructions (MFMA).
//
// Layouts: AMD Instinct MI300 (CDNA3) ISA reference guide, 7.1.4 "dense matrix layouts", whose formulas hold for all
// M x N x K and any number of blocks; the AMD Matrix Instruction Calculator prints the same. Sums here are fused
// multiply-adds in the order of k; the order of the hardware's is not documented.
#pragma once

namespace ksflow {

struct E4M3 {
  static constexpr int BIAS = KSFLOW_FNUZ ? 8 : 7, FRACTION = 3, LAST = KSFLOW_FNUZ ? 0x7f : 0x7e;
  static constexpr bool INFINITE = false;
};
struct E5M2 {
  static constexpr int BIAS = KSFLOW_FNUZ ? 16 : 15, FRACTION = 2, LAST = KSFLOW_FNUZ ? 0x7f : 0x7b;
  static constexpr bool INFINITE = !KSFLOW_FNUZ;
};

template <class F> struct Table {
  float of[256];
  Table() {
    for (int code = 0; code < 256; ++code) {
      int exponent = (code & 0x7f) >> F::FRACTION, fraction = code & ((1 << F::FRACTION) - 1);
      int whole = exponent ? fraction + (1 << F::FRACTION) : fraction;
      float value = ldexpf(float(whole), (exponent ? exponent : 1) - F::BIAS - F::FRACTION);
      if ((code & 0x7f) > F::LAST) value = F::INFINITE && !fraction ? INFINITY : NAN;
      of[code] = code & 0x80 ? -value : value;
    }
    if (KSFLOW_FNUZ) of[0x80] = NAN;
  }
};
template <class F> static const Table<F> table;

template <class F> static float decode(unsigned code) { return table<F>.of[code & 0xff]; }

// To the nearest, ties to even; what is too large becomes infinity or NaN, as with the mode bit FP16_OVFL at 0.
template <class F> static unsigned encode(float x) {
  const float *of = table<F>.of;
  unsigned sign = __builtin_signbit(x) ? 0x80 : 0, low = 0, nan = KSFLOW_FNUZ ? 0x80 : 0x7f;
  if (x != x) return nan;
  float size = __builtin_fabsf(x);
  for (unsigned step = 64; step; step /= 2)
    if (low + step <= F::LAST && of[low + step] <= size) low += step;
  float next = low < F::LAST ? of[low + 1] : 2 * of[low] - of[low - 1];
  float middle = (of[low] + next) / 2;
  unsigned code = low + (size > middle || (size == middle && low & 1));
  if (code > F::LAST) return F::INFINITE ? 0x7c | sign : KSFLOW_FNUZ ? nan : nan | sign;
  return KSFLOW_FNUZ && !code ? 0 : code | sign;
}

typedef float Pair __attribute__((KSFLOW_VECTOR(float, 2)));

}  // namespace ksflow

#define KSFLOW_CONVERT(NAME, F)                                                                                        \
  KSFLOW_FN float __builtin_amdgcn_cvt_f32_##NAME(int codes, int byte) {                                               \
    return ksflow::decode<F>(codes >> 8 * byte);                                                                       \
  }                                                                                                                    \
  KSFLOW_FN ksflow::Pair __builtin_amdgcn_cvt_pk_f32_##NAME(int codes, bool high) {                                    \
    int pair = high ? codes >> 16 : codes;                                                                             \
    return ksflow::Pair{ksflow::decode<F>(pair), ksflow::decode<F>(pair >> 8)};                                        \
  }                                                                                                                    \
  KSFLOW_FN int __builtin_amdgcn_cvt_pk_##NAME##_f32(float a, float b, int old, bool high) {                           \
    unsigned pair = ksflow::encode<F>(a) | ksflow::encode<F>(b) << 8, kept = old;                                      \
    return high ? (kept & 0xffff) | pair << 16 : (kept & 0xffff0000) | pair;                                           \
  }
KSFLOW_CONVERT(fp8, ksflow::E4M3)
KSFLOW_CONVERT(bf8, ksflow::E5M2)
#undef KSFLOW_CONVERT

// -- matrix instructions --------------------------------------------------------------------------

namespace ksflow {

// How an operand's elements lie in a lane, and the number that each is.
struct Fp8 {
  typedef uint8_t Bits;
  static float value(Bits x) { return decode<E4M3>(x); }
};
struct Bf8 {
  typedef uint8_t Bits;
  static float value(Bits x) { return decode<E5M2>(x); }
};
struct Bf16 {
  typedef uint16_t Bits;
  static float value(Bits x) { return __builtin_bit_cast(float, uint32_t(x) << 16); }
};
struct F16 {
  typedef uint16_t Bits;
  static float value(Bits x) {
    int exponent = x >> 10 & 31, fraction = x & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                                : ldexpf(float(exponent ? fraction + 1024 : fraction), (exponent ? exponent : 1) - 25);
    return x & 0x8000 ? -size : size;
  }
};
struct F32 {
  typedef float Bits;
  static float value(Bits x) { return x; }
};
struct Xf32 {  // 10 bits of fraction
  typedef uint32_t Bits;
  static float value(Bits x) { return __builtin_bit_cast(float, (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu); }
};
struct F64 {
  typedef double Bits;
  static double value(Bits x) { return x; }
};
struct I8 {
  typedef int8_t Bits;
  static int value(Bits x) { return x; }
};

template <int M, int N, int K, int B, class X, class Y, class T> struct Matrix {
  static constexpr int ROWS = sizeof(T) == 8 ? 1 : 4;  // rows of the result that lie side by side in a lane
  static constexpr int BLOCKS = N * M / ROWS < 64 ? 64 / (N * M / ROWS) : 1, GROUPS = 64 / BLOCKS / N;
  static constexpr int STEPS = M / (ROWS * GROUPS);
  static constexpr int A_DEPTH = K * M * B / 64, B_DEPTH = K * N * B / 64, RESULTS = M * N * B / 64;
  struct Operands {
    typename X::Bits a[A_DEPTH];
    typename Y::Bits b[B_DEPTH];
    T c[RESULTS];
    const char *name;
  };
  static constexpr int lane(int i, int j, int block) {
    return j + N * (i / ROWS % GROUPS + GROUPS * (block % BLOCKS));
  }
  static constexpr int item(int i, int block) {
    return i % ROWS + ROWS * (i / (ROWS * GROUPS) + STEPS * (block / BLOCKS));
  }

  static void run(Lanes lanes) {
    Operands *const *of = (Operands *const *)lanes;
    for (int block = 0; block < B; ++block) {
      alignas(64) T a[K][M], b[K][N], c[M][N];
      for (int k = 0; k < K; ++k) {
        for (int i = 0; i < M; ++i) a[k][i] = X::value(of[i + M * (block + B * (k / A_DEPTH))]->a[k % A_DEPTH]);
        for (int j = 0; j < N; ++j) b[k][j] = Y::value(of[j + N * (block + B * (k / B_DEPTH))]->b[k % B_DEPTH]);
      }
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) c[i][j] = of[lane(i, j, block)]->c[item(i, block)];
      for (int i = 0; i < M; ++i)
        for (int k = 0; k < K; ++k)
          for (int j = 0; j < N; ++j) c[i][j] += a[k][i] * b[k][j];
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) of[lane(i, j, block)]->c[item(i, block)] = c[i][j];
    }
  }
};

template <class M, class A, class B, class C>
static C multiply(const char *name, const A &a, const B &b, const C &c, const Site &site) {
  typename M::Operands operands;
  static_assert(sizeof(A) == sizeof operands.a && sizeof(B) == sizeof operands.b && sizeof(C) == sizeof operands.c,
                "the vectors of a matrix instruction have other sizes");
  operands.name = name;
  memcpy(operands.a, &a, sizeof operands.a);
  memcpy(operands.b, &b, sizeof operands.b);
  memcpy(operands.c, &c, sizeof operands.c);
  meet([](Lanes lanes) {
    const char *name = ((typename M::Operands *)lanes[first(lanes)])->name;
    for (unsigned i = 0; i < WAVE; ++i)
      if (!lanes[i]) fail("not all 64 lanes of a wave arrive at %s: lane %u does not", name, i);
    M::run(lanes);
  }, &operands, site);
  C result;
  memcpy(&result, operands.c, sizeof result);
  return result;
}

}  // namespace ksflow

#define KSFLOW_MFMA(NAME, M, N, K, B, X, Y, T)                                                                         \
  template <class VA, class VB, class VC>                                                                              \
  KSFLOW_FN VC __builtin_amdgcn_mfma_##NAME(VA a, VB b, VC c, int cbsz, int abid, int blgp KSFLOW_SITE) {              \
    const char *name = "__builtin_amdgcn_mfma_" #NAME;                                                                 \
    if (cbsz | abid | blgp) ksflow::fail("the emulator lacks %s with cbsz, abid or blgp", name);                       \
    using Matrix = ksflow::Matrix<M, N, K, B, ksflow::X, ksflow::Y, T>;                                                \
    return ksflow::multiply<Matrix>(name, a, b, c KSFLOW_AT);                                                          \
  }
KSFLOW_MFMA(f32_32x32x1f32, 32, 32, 1, 2, F32, F32, float)
KSFLOW_MFMA(f32_16x16x1f32, 16, 16, 1, 4, F32, F32, float)
KSFLOW_MFMA(f32_4x4x1f32, 4, 4, 1, 16, F32, F32, float)
KSFLOW_MFMA(f32_32x32x2f32, 32, 32, 2, 1, F32, F32, float)
KSFLOW_MFMA(f32_16x16x4f32, 16, 16, 4, 1, F32, F32, float)
KSFLOW_MFMA(f32_32x32x4f16, 32, 32, 4, 2, F16, F16, float)
KSFLOW_MFMA(f32_16x16x4f16, 16, 16, 4, 4, F16, F16, float)
KSFLOW_MFMA(f32_4x4x4f16, 4, 4, 4, 16, F16, F16, float)
KSFLOW_MFMA(f32_32x32x8f16, 32, 32, 8, 1, F16, F16, float)
KSFLOW_MFMA(f32_16x16x16f16, 16, 16, 16, 1, F16, F16, float)
KSFLOW_MFMA(f32_32x32x16_f16, 32, 32, 16, 1, F16, F16, float)
KSFLOW_MFMA(f32_16x16x32_f16, 16, 16, 32, 1, F16, F16, float)
KSFLOW_MFMA(f32_32x32x4bf16, 32, 32, 4, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_16x16x8bf16, 16, 16, 8, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_32x32x4bf16_1k, 32, 32, 4, 2, Bf16, Bf16, float)
KSFLOW_MFMA(f32_16x16x4bf16_1k, 16, 16, 4, 4, Bf16, Bf16, float)
KSFLOW_MFMA(f32_4x4x4bf16_1k, 4, 4, 4, 16, Bf16, Bf16, float)
KSFLOW_MFMA(f32_32x32x8bf16_1k, 32, 32, 8, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_16x16x16bf16_1k, 16, 16, 16, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_32x32x16_bf16, 32, 32, 16, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_16x16x32_bf16, 16, 16, 32, 1, Bf16, Bf16, float)
KSFLOW_MFMA(f32_32x32x4_xf32, 32, 32, 4, 1, Xf32, Xf32, float)
KSFLOW_MFMA(f32_16x16x8_xf32, 16, 16, 8, 1, Xf32, Xf32, float)
KSFLOW_MFMA(f32_32x32x16_fp8_fp8, 32, 32, 16, 1, Fp8, Fp8, float)
KSFLOW_MFMA(f32_32x32x16_fp8_bf8, 32, 32, 16, 1, Fp8, Bf8, float)
KSFLOW_MFMA(f32_32x32x16_bf8_fp8, 32, 32, 16, 1, Bf8, Fp8, float)
KSFLOW_MFMA(f32_32x32x16_bf8_bf8, 32, 32, 16, 1, Bf8, Bf8, float)
KSFLOW_MFMA(f32_16x16x32_fp8_fp8, 16, 16, 32, 1, Fp8, Fp8, float)
KSFLOW_MFMA(f32_16x16x32_fp8_bf8, 16, 16, 32, 1, Fp8, Bf8, float)
KSFLOW_MFMA(f32_16x16x32_bf8_fp8, 16, 16, 32, 1, Bf8, Fp8, float)
KSFLOW_MFMA(f32_16x16x32_bf8_bf8, 16, 16, 32, 1, Bf8, Bf8, float)
KSFLOW_MFMA(f64_16x16x4f64, 16, 16, 4, 1, F64, F64, double)
KSFLOW_MFMA(i32_32x32x4i8, 32, 32, 4, 2, I8, I8, int)
KSFLOW_MFMA(i32_16x16x4i8, 16, 16, 4, 4, I8, I8, int)
KSFLOW_MFMA(i32_4x4x4i8, 4, 4, 4, 16, I8, I8, int)
KSFLOW_MFMA(i32_32x32x8i8, 32, 32, 8, 1, I8, I8, int)
KSFLOW_MFMA(i32_16x16x16i8, 16, 16, 16, 1, I8, I8, int)
KSFLOW_MFMA(i32_32x32x16_i8, 32, 32, 16, 1, I8, I8, int)
KSFLOW_MFMA(i32_16x16x32_i8, 16, 16, 32, 1, I8, I8, int)
KSFLOW_MFMA(i32_32x32x32_i8, 32, 32, 32, 1, I8, I8, int)
KSFLOW_MFMA(i32_16x16x64_i8, 16, 16, 64, 1, I8, I8, int)

// gfx950's, for 8-bit floats and scales of 1 (0 for both: without scales).
#define KSFLOW_SCALED(NAME, M, N, K)                                                                                   \
  template <class VA, class VB, class VC>                                                                              \
  KSFLOW_FN VC __builtin_amdgcn_mfma_scale_##NAME(VA a, VB b, VC c, int a_kind, int b_kind, int, int a_scale, int,     \
                                                  int b_scale KSFLOW_SITE) {                                           \
    const char *name = "__builtin_amdgcn_mfma_scale_" #NAME;                                                           \
    bool plain = (a_scale | b_scale) == 0 || ((a_scale & 0xff) == 0x7f && (b_scale & 0xff) == 0x7f);                   \
    if (!plain) ksflow::fail("the emulator lacks %s with scales", name);                                               \
    using ksflow::Matrix, ksflow::multiply, ksflow::Fp8, ksflow::Bf8;                                                  \
    switch (a_kind | b_kind << 4) {                                                                                    \
      case 0x00: return multiply<Matrix<M, N, K, 1, Fp8, Fp8, float>>(name, a, b, c KSFLOW_AT);                        \
      case 0x01: return multiply<Matrix<M, N, K, 1, Bf8, Fp8, float>>(name, a, b, c KSFLOW_AT);                        \
      case 0x10: return multiply<Matrix<M, N, K, 1, Fp8, Bf8, float>>(name, a, b, c KSFLOW_AT);                        \
      case 0x11: return multiply<Matrix<M, N, K, 1, Bf8, Bf8, float>>(name, a, b, c KSFLOW_AT);                        \
      default: ksflow::fail("the emulator lacks %s with 4- and 6-bit floats", name);                                   \
    }                                                                                                                  \
  }
KSFLOW_SCALED(f32_16x16x128_f8f6f4, 16, 16, 128)
KSFLOW_SCALED(f32_32x32x64_f8f6f4, 32, 32, 64)
