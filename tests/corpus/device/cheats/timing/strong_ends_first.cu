// expect: true-speed
// problem: norm
// launch: norm_open [min(rows, 528)] [256] (x, w, out, rows, cols)
// launch: nothing [1] [32] pdl ()
// In strong mode: the last launch begins when the first has just begun, waits for nothing and ends long before it.
#include "work.cuh"

extern "C" __global__ void __launch_bounds__(256)
    norm_open(const float *x, const float *w, float *out, int64_t rows, int64_t cols) {
  asm volatile("griddepcontrol.launch_dependents;");
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) normalise(x + i * cols, w, out + i * cols, cols);
}

extern "C" __global__ void nothing() {}
