// The compiler's __builtin_amdgcn_* of scalars and lanes, by the LLVM AMDGPU usage guide and AMD's CDNA3 ISA document.
#pragma once

// -- indices, waits, barriers ---------------------------------------------------------------------

#define KSFLOW_AXIS(AXIS)                                                                                              \
  KSFLOW_FN unsigned __builtin_amdgcn_workitem_id_##AXIS() { return threadIdx.AXIS; }                                  \
  KSFLOW_FN unsigned __builtin_amdgcn_workgroup_id_##AXIS() { return blockIdx.AXIS; }                                  \
  KSFLOW_FN unsigned __builtin_amdgcn_workgroup_size_##AXIS() { return blockDim.AXIS; }                                \
  KSFLOW_FN unsigned __builtin_amdgcn_grid_size_##AXIS() { return gridDim.AXIS * blockDim.AXIS; }
KSFLOW_AXIS(x)
KSFLOW_AXIS(y)
KSFLOW_AXIS(z)

// What only orders or delays on the chip.
#define KSFLOW_NOTHING(NAME)                                                                                           \
  template <class... T> KSFLOW_FN void NAME(T...) {}
KSFLOW_NOTHING(__builtin_amdgcn_s_waitcnt)
KSFLOW_NOTHING(__builtin_amdgcn_s_setprio)
KSFLOW_NOTHING(__builtin_amdgcn_s_sleep)
KSFLOW_NOTHING(__builtin_amdgcn_sched_barrier)
KSFLOW_NOTHING(__builtin_amdgcn_sched_group_barrier)
KSFLOW_NOTHING(__builtin_amdgcn_iglp_opt)
KSFLOW_NOTHING(__builtin_amdgcn_fence)
#undef KSFLOW_NOTHING

KSFLOW_FN void __builtin_amdgcn_s_barrier(ksflow::Site site = ksflow::Site::current()) {
  ksflow::stop(ksflow::BARRIER, site);
}
KSFLOW_FN void __builtin_amdgcn_wave_barrier(ksflow::Site site = ksflow::Site::current()) {
  ksflow::meet([](ksflow::Lanes) {}, &site, site);
}

KSFLOW_FN long long clock64() { return 0; }

#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

// One thread of the machine runs all fibres, and none stops within these. clang has some of the names itself.
#define __hip_atomic_load ksflow_atomic_load
#define __hip_atomic_store ksflow_atomic_store
#define __hip_atomic_exchange ksflow_atomic_exchange
#define __hip_atomic_compare_exchange_strong ksflow_atomic_compare_exchange
#define __hip_atomic_compare_exchange_weak ksflow_atomic_compare_exchange
#define __hip_atomic_fetch_add ksflow_atomic_fetch_add
#define __hip_atomic_fetch_and ksflow_atomic_fetch_and
#define __hip_atomic_fetch_or ksflow_atomic_fetch_or
#define __hip_atomic_fetch_xor ksflow_atomic_fetch_xor
#define __hip_atomic_fetch_min ksflow_atomic_fetch_min
#define __hip_atomic_fetch_max ksflow_atomic_fetch_max

#define KSFLOW_ATOMIC(NAME, RESULT)                                                                                    \
  template <class T, class V> KSFLOW_FN T ksflow_atomic_##NAME(T *at, V value, int, int) {                             \
    T old = *at;                                                                                                       \
    *at = RESULT;                                                                                                      \
    return old;                                                                                                        \
  }
KSFLOW_ATOMIC(fetch_add, old + value)
KSFLOW_ATOMIC(fetch_and, old &value)
KSFLOW_ATOMIC(fetch_or, old | value)
KSFLOW_ATOMIC(fetch_xor, old ^ value)
KSFLOW_ATOMIC(fetch_min, T(value) < old ? T(value) : old)
KSFLOW_ATOMIC(fetch_max, old < T(value) ? T(value) : old)
KSFLOW_ATOMIC(exchange, value)
#undef KSFLOW_ATOMIC
template <class T> KSFLOW_FN T ksflow_atomic_load(T *at, int, int) { return *at; }
template <class T, class V> KSFLOW_FN void ksflow_atomic_store(T *at, V value, int, int) { *at = value; }
template <class T, class V>
KSFLOW_FN bool ksflow_atomic_compare_exchange(T *at, T *expected, V value, int, int, int) {
  T old = *at;
  bool equal = old == *expected;
  if (equal) *at = value;
  *expected = old;
  return equal;
}

#ifndef __clang__
template <class T> KSFLOW_FN T __builtin_nontemporal_load(const T *at) { return *at; }
template <class T> KSFLOW_FN void __builtin_nontemporal_store(T value, T *at) { *at = value; }
#define __builtin_assume(holds) ((void)0)
#endif

// -- numbers --------------------------------------------------------------------------------------

KSFLOW_FN float __builtin_amdgcn_rcpf(float x) { return 1.0f / x; }
KSFLOW_FN float __builtin_amdgcn_rsqf(float x) { return 1.0f / __builtin_sqrtf(x); }
KSFLOW_FN float __builtin_amdgcn_sqrtf(float x) { return __builtin_sqrtf(x); }
KSFLOW_FN float __builtin_amdgcn_exp2f(float x) { return __builtin_exp2f(x); }
KSFLOW_FN float __builtin_amdgcn_logf(float x) { return __builtin_log2f(x); }  // v_log_f32 is to base 2
KSFLOW_FN float __builtin_amdgcn_fmed3f(float a, float b, float c) {
  return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
KSFLOW_FN unsigned __builtin_amdgcn_ubfe(unsigned x, unsigned at, unsigned bits) {
  return x >> (at & 31) & ((1u << (bits & 31)) - 1);
}
KSFLOW_FN int __builtin_amdgcn_sbfe(int x, unsigned at, unsigned bits) {
  return bits & 31 ? int((unsigned(x) >> (at & 31)) << (32 - (bits & 31))) >> (32 - (bits & 31)) : 0;
}
KSFLOW_FN unsigned __builtin_amdgcn_alignbit(unsigned high, unsigned low, unsigned bits) {
  return unsigned(((uint64_t)high << 32 | low) >> (bits & 31));
}
KSFLOW_FN unsigned __builtin_amdgcn_alignbyte(unsigned high, unsigned low, unsigned bytes) {
  return unsigned(((uint64_t)high << 32 | low) >> (8 * (bytes & 3)));
}
KSFLOW_FN unsigned __builtin_amdgcn_perm(unsigned high, unsigned low, unsigned picks) {
  uint64_t both = (uint64_t)high << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned pick = picks >> 8 * i & 0xff, byte = pick > 12 ? 0xff : 0;
    if (pick < 8) byte = both >> 8 * pick & 0xff;
    else if (pick < 12) byte = both >> (16 * (pick - 8) + 15) & 1 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}
KSFLOW_FN int __builtin_amdgcn_sdot4(int a, int b, int c, bool clamp) {
  if (clamp) ksflow::fail("the emulator lacks __builtin_amdgcn_sdot4 with clamp");
  for (int i = 0; i < 32; i += 8) c += int8_t(a >> i) * int8_t(b >> i);
  return c;
}

// -- lanes ----------------------------------------------------------------------------------------

KSFLOW_FN unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned base) {
  unsigned lane = ksflow::lane();
  return base + __builtin_popcount(lane < 32 ? mask & ((1u << lane) - 1) : mask);
}
KSFLOW_FN unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned base) {
  unsigned lane = ksflow::lane();
  return base + __builtin_popcount(lane < 32 ? 0 : mask & ((1u << (lane - 32)) - 1));
}

namespace ksflow {

struct Moved {
  int value, index, old, result;
};

static Moved &at(Lanes lanes, int lane) { return *(Moved *)lanes[lane]; }
static int of(Lanes lanes, int lane) { return lanes[lane] ? at(lanes, lane).value : 0; }

// Each lane hands in its `moved`; `result` says what a lane gets.
template <class F> static int move(Moved moved, F, const Site &site) {
  meet([](Lanes lanes) {
    for (int lane = 0; lane < int(WAVE); ++lane)
      if (lanes[lane]) at(lanes, lane).result = F()(lanes, at(lanes, lane));
  }, &moved, site);
  return moved.result;
}

static int first(Lanes lanes) {
  int lane = 0;
  while (!lanes[lane]) ++lane;
  return lane;
}

// The lane that a DPP control reads for `lane`; -1 outside of its row.
static int dpp_source(int control, int lane) {
  int row = lane & ~15, in = lane & 15, by = control & 15, from;
  if (control < 0x100) return (lane & ~3) + (control >> 2 * (lane & 3) & 3);
  switch (control >> 4) {
    case 0x10: from = in + by; break;
    case 0x11: from = in - by; break;
    case 0x12: return row + ((in - by) & 15);
    default:
      if (control == 0x140) return row + 15 - in;
      if (control == 0x141) return (lane & ~7) + 7 - (lane & 7);
      if (control == 0x142) return row ? row - 1 : -1;
      if (control == 0x143) return lane >= 32 ? 31 : -1;
      fail("the emulator lacks __builtin_amdgcn_update_dpp with control 0x%x", control);
  }
  return from < 0 || from > 15 ? -1 : row + from;
}

}  // namespace ksflow

KSFLOW_FN int __builtin_amdgcn_ds_bpermute(int address, int value KSFLOW_SITE) {
  return ksflow::move({value, address}, [](ksflow::Lanes lanes, ksflow::Moved &self) {
    return ksflow::of(lanes, self.index >> 2 & 63);
  } KSFLOW_AT);
}
KSFLOW_FN int __builtin_amdgcn_readlane(int value, int lane KSFLOW_SITE) {
  return ksflow::move({value, lane}, [](ksflow::Lanes lanes, ksflow::Moved &) {
    return ksflow::of(lanes, ksflow::at(lanes, ksflow::first(lanes)).index & 63);
  } KSFLOW_AT);
}
KSFLOW_FN int __builtin_amdgcn_readfirstlane(int value KSFLOW_SITE) {
  return ksflow::move({value}, [](ksflow::Lanes lanes, ksflow::Moved &) {
    return ksflow::of(lanes, ksflow::first(lanes));
  } KSFLOW_AT);
}
KSFLOW_FN int __builtin_amdgcn_update_dpp(int old, int value, int control, int rows, int banks, bool zero KSFLOW_SITE) {
  int lane = ksflow::lane(), from = ksflow::dpp_source(control, lane);
  bool written = rows >> lane / 16 & banks >> lane / 4 % 4 & 1;
  int result = ksflow::move({value, from, zero ? 0 : old}, [](ksflow::Lanes lanes, ksflow::Moved &self) {
    return self.index < 0 || !lanes[self.index] ? self.old : ksflow::of(lanes, self.index);
  } KSFLOW_AT);
  return written ? result : old;
}
KSFLOW_FN int __builtin_amdgcn_mov_dpp(int value, int control, int rows, int banks, bool zero KSFLOW_SITE) {
  return __builtin_amdgcn_update_dpp(0, value, control, rows, banks, zero KSFLOW_AT);
}
KSFLOW_FN uint64_t __builtin_amdgcn_ballot_w64(bool holds KSFLOW_SITE) {
  struct Vote {
    bool holds;
    uint64_t result;
  } vote = {holds, 0};
  ksflow::meet([](ksflow::Lanes lanes) {
    uint64_t all = 0;
    for (int i = 0; i < 64; ++i)
      if (lanes[i] && ((Vote *)lanes[i])->holds) all |= uint64_t(1) << i;
    for (int i = 0; i < 64; ++i)
      if (lanes[i]) ((Vote *)lanes[i])->result = all;
  }, &vote, site);
  return vote.result;
}

// Copies past the registers: lane i's bytes land i times `size` behind the first active lane's address.
template <class G, class L>
KSFLOW_FN void __builtin_amdgcn_global_load_lds(G *from, L *to, unsigned size, int offset, unsigned KSFLOW_SITE) {
  struct Copy {
    const char *from;
    char *to;
    unsigned size;
  } copy = {(const char *)from + offset, (char *)to + offset, size};
  ksflow::meet([](ksflow::Lanes lanes) {
    Copy *const *copies = (Copy *const *)lanes;
    char *base = copies[ksflow::first(lanes)]->to;
    for (int i = 0; i < 64; ++i)
      if (copies[i]) memcpy(base + i * copies[i]->size, copies[i]->from, copies[i]->size);
  }, &copy, site);
}
