#include <hip/hip_runtime.h>
// launch: planted_race [1] [256] (a, out)

extern "C" __global__ void planted_race(const float *a, float *out) {
  __shared__ float tile[256];
  tile[threadIdx.x] = a[threadIdx.x];
  out[threadIdx.x] = tile[255 - threadIdx.x];  // no barrier
}
