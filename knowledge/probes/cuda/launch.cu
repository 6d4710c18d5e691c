// 32 launches that hardly do anything, one after another.
// launch: first [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
// launch: tick [1] [32] (x, y)
extern "C" __global__ void first(const float *x, float *y) {
  if (threadIdx.x == 0) *y = 0;
}

extern "C" __global__ void tick(const float *x, float *y) {
  if (threadIdx.x == 0) *y += *x;
}
