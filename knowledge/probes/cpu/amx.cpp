// Four chains of tdpbf16ps: 16 x 16 sums, 32 products each.
#include <cstdint>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

struct alignas(64) Shape {
  uint8_t palette, start, rest[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *strides) {
  static long granted = syscall(SYS_arch_prctl, 0x1023, 18);  // the tiles' state
  if (granted) return;
  Shape shape = {};
  shape.palette = 1;
  for (int i = 0; i < 8; ++i) shape.bytes[i] = 64, shape.rows[i] = 16;
  _tile_loadconfig(&shape);
  alignas(64) uint16_t value[512], one[512];
  alignas(64) float sums[256];
  uint32_t bits;
  __builtin_memcpy(&bits, x, 4);
  for (int i = 0; i < 512; ++i) value[i] = bits >> 16, one[i] = 0x3f80;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, value, 64);
  _tile_loadd(5, value, 64);
  _tile_loadd(6, one, 64);
  _tile_loadd(7, one, 64);
  for (int64_t turn = 0; turn < turns; ++turn) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  double total = 0;
  auto add = [&] {
    for (float sum : sums) total += sum;
  };
  _tile_stored(0, sums, 64);
  add();
  _tile_stored(1, sums, 64);
  add();
  _tile_stored(2, sums, 64);
  add();
  _tile_stored(3, sums, 64);
  add();
  _tile_release();
  y[0] = (float)total;
}
