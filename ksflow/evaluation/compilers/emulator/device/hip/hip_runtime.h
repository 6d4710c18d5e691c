// HIP's device side without ROCm: enough to compile kernels with clang alone and see what they need of the chip.
//
// clang -x hip --cuda-device-only -nogpulib -nogpuinc -I<folder above this one>. Covered: indices, shared memory,
// barriers, shuffles, votes, atomics, vector types, the mathematics that the compiler has built in; the compiler's
// __builtin_amdgcn_* need no header. NOT covered: host calls, device libraries (sinf, powf, printf), classes of 8- and
// 16-bit floats. With -DKSFLOW_ROCM the installation's own header is taken.
#ifdef KSFLOW_ROCM
#include_next <hip/hip_runtime.h>
#else
#pragma once

typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// With any other attribute the compiler assumes 1024 threads and reports spills that do not happen.
#define KSFLOW_BOUNDS1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define KSFLOW_BOUNDS2(threads, waves) KSFLOW_BOUNDS1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define KSFLOW_PICK(first, second, name, ...) name
#define __launch_bounds__(...) KSFLOW_PICK(__VA_ARGS__, KSFLOW_BOUNDS2, KSFLOW_BOUNDS1)(__VA_ARGS__)
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

#define KSFLOW_FN static __attribute__((device, always_inline, unused)) inline
#define KSFLOW_SITE
#define KSFLOW_AT

struct dim3 {
  unsigned x, y, z;
  __attribute__((device)) constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Reading a member calls the function: the indices stay in the registers that the hardware puts them in.
#define KSFLOW_INDEX(NAME, X, Y, Z)                                                                                    \
  struct ksflow_##NAME {                                                                                               \
    __declspec(property(get = get_x)) unsigned x;                                                                      \
    __declspec(property(get = get_y)) unsigned y;                                                                      \
    __declspec(property(get = get_z)) unsigned z;                                                                      \
    static KSFLOW_MEMBER unsigned get_x() { return X; }                                                                \
    static KSFLOW_MEMBER unsigned get_y() { return Y; }                                                                \
    static KSFLOW_MEMBER unsigned get_z() { return Z; }                                                                \
    KSFLOW_MEMBER operator dim3() const { return dim3(get_x(), get_y(), get_z()); }                                    \
  };                                                                                                                   \
  extern const __attribute__((device, weak)) ksflow_##NAME NAME;
#define KSFLOW_MEMBER __attribute__((device, always_inline)) inline
KSFLOW_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
             __builtin_amdgcn_workitem_id_z())
KSFLOW_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
             __builtin_amdgcn_workgroup_id_z())
KSFLOW_INDEX(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_workgroup_size_z())
KSFLOW_INDEX(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
             __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
#undef KSFLOW_INDEX

#define warpSize 64

KSFLOW_FN void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
KSFLOW_FN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
KSFLOW_FN void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
KSFLOW_FN void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
KSFLOW_FN long long clock64() { return __builtin_readcyclecounter(); }

#include "ksflow_common.h"

#define KSFLOW_UNARY(NAME, BUILTIN) KSFLOW_FN float NAME(float x) { return BUILTIN(x); }
KSFLOW_UNARY(expf, __builtin_expf)
KSFLOW_UNARY(exp2f, __builtin_exp2f)
KSFLOW_UNARY(logf, __builtin_logf)
KSFLOW_UNARY(log2f, __builtin_log2f)
KSFLOW_UNARY(log10f, __builtin_log10f)
KSFLOW_UNARY(sqrtf, __builtin_sqrtf)
KSFLOW_UNARY(fabsf, __builtin_fabsf)
KSFLOW_UNARY(floorf, __builtin_floorf)
KSFLOW_UNARY(ceilf, __builtin_ceilf)
KSFLOW_UNARY(truncf, __builtin_truncf)
KSFLOW_UNARY(rintf, __builtin_rintf)
KSFLOW_UNARY(roundf, __builtin_roundf)
KSFLOW_UNARY(__expf, __builtin_expf)
KSFLOW_UNARY(__logf, __builtin_logf)
KSFLOW_UNARY(__log2f, __builtin_log2f)
#undef KSFLOW_UNARY
KSFLOW_FN float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KSFLOW_FN float fminf(float a, float b) { return __builtin_fminf(a, b); }
KSFLOW_FN float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
KSFLOW_FN int abs(int x) { return x < 0 ? -x : x; }
KSFLOW_FN bool isnan(float x) { return __builtin_isnan(x); }
KSFLOW_FN bool isinf(float x) { return __builtin_isinf(x); }
#endif
