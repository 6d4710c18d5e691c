// What the device header and the emulator share: names of HIP that can be said in terms of compiler builtins.
//
// Defined before this is included: KSFLOW_FN (how a function begins), KSFLOW_SITE (a last parameter: where the call
// stands) and KSFLOW_AT (hands it on); a GPU needs neither, the emulator tells lanes apart by them.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long longlong;
typedef unsigned long long ulonglong;

// -- vectors --------------------------------------------------------------------------------------

template <class T> struct ksflow_same { typedef T type; };
template <class T> struct ksflow1 { T x; };
template <class T> struct alignas(2 * sizeof(T)) ksflow2 { T x, y; };
template <class T> struct ksflow3 { T x, y, z; };
template <class T> struct alignas(4 * sizeof(T)) ksflow4 { T x, y, z, w; };

#define KSFLOW_OPERATOR(OP)                                                                                            \
  template <class T> KSFLOW_FN ksflow2<T> operator OP(ksflow2<T> a, ksflow2<T> b) {                                    \
    return {T(a.x OP b.x), T(a.y OP b.y)};                                                                             \
  }                                                                                                                    \
  template <class T> KSFLOW_FN ksflow3<T> operator OP(ksflow3<T> a, ksflow3<T> b) {                                    \
    return {T(a.x OP b.x), T(a.y OP b.y), T(a.z OP b.z)};                                                              \
  }                                                                                                                    \
  template <class T> KSFLOW_FN ksflow4<T> operator OP(ksflow4<T> a, ksflow4<T> b) {                                    \
    return {T(a.x OP b.x), T(a.y OP b.y), T(a.z OP b.z), T(a.w OP b.w)};                                               \
  }                                                                                                                    \
  template <class T> KSFLOW_FN ksflow2<T> operator OP(ksflow2<T> a, typename ksflow_same<T>::type b) {                 \
    return a OP ksflow2<T>{b, b};                                                                                      \
  }                                                                                                                    \
  template <class T> KSFLOW_FN ksflow3<T> operator OP(ksflow3<T> a, typename ksflow_same<T>::type b) {                 \
    return a OP ksflow3<T>{b, b, b};                                                                                   \
  }                                                                                                                    \
  template <class T> KSFLOW_FN ksflow4<T> operator OP(ksflow4<T> a, typename ksflow_same<T>::type b) {                 \
    return a OP ksflow4<T>{b, b, b, b};                                                                                \
  }                                                                                                                    \
  template <template <class> class V, class T>                                                                         \
  KSFLOW_FN V<T> &operator OP##=(V<T> &a, typename ksflow_same<V<T>>::type b) {                                        \
    return a = a OP b;                                                                                                 \
  }
KSFLOW_OPERATOR(+)
KSFLOW_OPERATOR(-)
KSFLOW_OPERATOR(*)
KSFLOW_OPERATOR(/)
#undef KSFLOW_OPERATOR

#define KSFLOW_VECTORS(NAME, T)                                                                                        \
  typedef ksflow1<T> NAME##1;                                                                                          \
  typedef ksflow2<T> NAME##2;                                                                                          \
  typedef ksflow3<T> NAME##3;                                                                                          \
  typedef ksflow4<T> NAME##4;                                                                                          \
  KSFLOW_FN NAME##1 make_##NAME##1(T x) { return {x}; }                                                                \
  KSFLOW_FN NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                                        \
  KSFLOW_FN NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                                \
  KSFLOW_FN NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
KSFLOW_VECTORS(char, signed char)
KSFLOW_VECTORS(uchar, unsigned char)
KSFLOW_VECTORS(short, short)
KSFLOW_VECTORS(ushort, unsigned short)
KSFLOW_VECTORS(int, int)
KSFLOW_VECTORS(uint, unsigned int)
KSFLOW_VECTORS(long, long)
KSFLOW_VECTORS(ulong, unsigned long)
KSFLOW_VECTORS(longlong, long long)
KSFLOW_VECTORS(ulonglong, unsigned long long)
KSFLOW_VECTORS(float, float)
KSFLOW_VECTORS(double, double)
#undef KSFLOW_VECTORS

// -- bits and numbers -----------------------------------------------------------------------------

template <class A, class B> KSFLOW_FN auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B> KSFLOW_FN auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }

KSFLOW_FN int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
KSFLOW_FN unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
KSFLOW_FN float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
KSFLOW_FN float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
KSFLOW_FN int __popc(unsigned x) { return __builtin_popcount(x); }
KSFLOW_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
KSFLOW_FN int __clz(int x) { return x ? __builtin_clz(x) : 32; }
KSFLOW_FN int __ffs(int x) { return __builtin_ffs(x); }
KSFLOW_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
KSFLOW_FN int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
KSFLOW_FN float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KSFLOW_FN float __fdividef(float a, float b) { return a / b; }
KSFLOW_FN float __frcp_rn(float a) { return 1.0f / a; }
KSFLOW_FN float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
KSFLOW_FN float rsqrtf(float a) { return __builtin_amdgcn_rsqf(a); }
KSFLOW_FN float __saturatef(float a) { return __builtin_fminf(__builtin_fmaxf(a, 0.0f), 1.0f); }

// -- lanes ----------------------------------------------------------------------------------------

KSFLOW_FN unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }

KSFLOW_FN unsigned long long __ballot(int holds KSFLOW_SITE) {
  return __builtin_amdgcn_ballot_w64(holds != 0 KSFLOW_AT);
}
KSFLOW_FN int __any(int holds KSFLOW_SITE) { return __builtin_amdgcn_ballot_w64(holds != 0 KSFLOW_AT) != 0; }
KSFLOW_FN int __all(int holds KSFLOW_SITE) { return __builtin_amdgcn_ballot_w64(holds == 0 KSFLOW_AT) == 0; }

template <class T> KSFLOW_FN T ksflow_from(int lane, T value KSFLOW_SITE) {
  int words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &value, sizeof(T));
  for (int &word : words) word = __builtin_amdgcn_ds_bpermute(lane << 2, word KSFLOW_AT);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

template <class T> KSFLOW_FN T __shfl(T value, int lane, int width = 64 KSFLOW_SITE) {
  int self = __lane_id(), first = self & ~(width - 1);
  return ksflow_from((lane & (width - 1)) + first, value KSFLOW_AT);
}
template <class T> KSFLOW_FN T __shfl_up(T value, unsigned delta, int width = 64 KSFLOW_SITE) {
  int self = __lane_id(), from = self - (int)delta;
  return ksflow_from(from < (self & ~(width - 1)) ? self : from, value KSFLOW_AT);
}
template <class T> KSFLOW_FN T __shfl_down(T value, unsigned delta, int width = 64 KSFLOW_SITE) {
  int self = __lane_id(), from = self + (int)delta;
  return ksflow_from((self & (width - 1)) + (int)delta >= width ? self : from, value KSFLOW_AT);
}
template <class T> KSFLOW_FN T __shfl_xor(T value, int mask, int width = 64 KSFLOW_SITE) {
  int self = __lane_id(), from = self ^ mask;
  return ksflow_from(from >= ((self + width) & ~(width - 1)) ? self : from, value KSFLOW_AT);
}

// -- atomics --------------------------------------------------------------------------------------

#define KSFLOW_ATOMIC(NAME, BUILTIN)                                                                                   \
  template <class T> KSFLOW_FN T NAME(T *at, typename ksflow_same<T>::type value) {                                    \
    return BUILTIN(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                                             \
  }
KSFLOW_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
KSFLOW_ATOMIC(unsafeAtomicAdd, __hip_atomic_fetch_add)
KSFLOW_ATOMIC(atomicAnd, __hip_atomic_fetch_and)
KSFLOW_ATOMIC(atomicOr, __hip_atomic_fetch_or)
KSFLOW_ATOMIC(atomicXor, __hip_atomic_fetch_xor)
KSFLOW_ATOMIC(atomicMin, __hip_atomic_fetch_min)
KSFLOW_ATOMIC(atomicMax, __hip_atomic_fetch_max)
KSFLOW_ATOMIC(atomicExch, __hip_atomic_exchange)
#undef KSFLOW_ATOMIC
template <class T> KSFLOW_FN T atomicSub(T *at, typename ksflow_same<T>::type value) { return atomicAdd(at, -value); }
template <class T>
KSFLOW_FN T atomicCAS(T *at, typename ksflow_same<T>::type expected, typename ksflow_same<T>::type value) {
  __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}
