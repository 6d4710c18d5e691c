// What the CPU probes measure, by a program of its own with a clock of its own. Prints NAME.FIGURE and a time in ns (of all that is
// named in the probe's case) for each of its repetitions; of one probe, where its name and a dot are given.
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

static volatile float sink;
static const char *only = "";  // the probe that is asked for

static bool wanted(const char *name) { return std::strncmp(name, only, std::strlen(only)) == 0; }

static void time_it(const char *name, int times, const std::function<void()> &work, const std::function<void()> &before = [] {}) {
  if (!wanted(name)) return;
  before(), work();
  std::printf("%s", name);
  for (int i = 0; i < times; ++i) {
    before();
    auto start = std::chrono::steady_clock::now();
    work();
    std::printf(" %.0f", std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("\n");
}

template <typename T>
static T *room(size_t count) {
  size_t bytes = (count * sizeof(T) + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  void *at = aligned_alloc(2 << 20, bytes);
  madvise(at, bytes, MADV_HUGEPAGE);
  std::memset(at, 0, bytes);
  return (T *)at;
}

static void reading(const char *name, size_t floats, int turns, int times) {
  if (!wanted(name)) return;
  static float *data = room<float>(1 << 28);
  time_it(name, times, [=] {
    __m512 sum[8];
    for (auto &one : sum) one = _mm512_setzero_ps();
    for (int turn = 0; turn < turns; ++turn) {
      for (const float *at = data; at < data + floats; at += 128)
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) sum[j] = _mm512_add_ps(sum[j], _mm512_load_ps(at + 16 * j));
      asm volatile("" ::: "memory");
    }
    for (int j = 1; j < 8; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    sink = _mm512_reduce_add_ps(sum[0]);
  });
}

static void walking(const char *name, size_t lines, int steps, int times) {
  if (!wanted(name)) return;
  // one cycle through all lines, in a random order
  void **ring = room<void *>(lines * 8);
  uint32_t *order = room<uint32_t>(lines);
  for (size_t i = 0; i < lines; ++i) order[i] = i;
  uint64_t state = 88172645463325252ull;
  for (size_t i = lines - 1; i; --i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    size_t j = state % i;
    uint32_t kept = order[i];
    order[i] = order[j], order[j] = kept;
  }
  for (size_t i = 0; i < lines; ++i) ring[(size_t)order[i] * 8] = ring + (size_t)order[(i + 1) % lines] * 8;
  void **at = ring + (size_t)order[0] * 8;
  time_it(name, times, [&] {
    for (int step = 0; step < steps; ++step) at = (void **)*at;
    asm volatile("" : "+r"(at));
  });
  free(ring), free(order);
}

struct alignas(64) Shape {
  uint8_t palette = 1, start = 0, rest[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

int main(int count, char **words) {
  only = count > 1 ? words[1] : "";
  time_it("clock.clock", 200, [] {
    uint64_t count = 1000000;
    asm volatile("1: sub $1, %0\n jnz 1b" : "+r"(count));  // a cycle a round
  });
#if defined(__AVX512F__)
  reading("memory-read.rate", 1 << 28, 1, 7);
  reading("cache-read.small", 4096, 4096, 200);
  reading("cache-read.middle", 131072, 128, 200);
  reading("cache-read.large", 2097152, 8, 60);
  time_it("fma.rate", 200, [] {
    __m512 sum[20], value = _mm512_set1_ps(sink), one = _mm512_set1_ps(sink);
    for (int j = 0; j < 20; ++j) sum[j] = _mm512_set1_ps(j);
    for (int turn = 0; turn < 24000; ++turn)
#pragma GCC unroll 20
      for (int j = 0; j < 20; ++j) sum[j] = _mm512_fmadd_ps(sum[j], one, value);
    for (int j = 1; j < 20; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    sink = _mm512_reduce_add_ps(sum[0]);
  });
#endif
#if defined(__AVX512BF16__)
  time_it("bf16-dot.rate", 200, [] {
    __m512 sum[20];
    __m512bh value = (__m512bh)_mm512_set1_ps(sink), one = (__m512bh)_mm512_set1_ps(sink);
    for (int j = 0; j < 20; ++j) sum[j] = _mm512_set1_ps(j);
    for (int turn = 0; turn < 24000; ++turn)
#pragma GCC unroll 20
      for (int j = 0; j < 20; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], value, one);
    for (int j = 1; j < 20; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    sink = _mm512_reduce_add_ps(sum[0]);
  });
#endif
#if defined(__AMX_BF16__)
  if (syscall(SYS_arch_prctl, 0x1023, 18) == 0)
    time_it("amx.rate", 100, [] {
      Shape shape;
      _tile_loadconfig(&shape);
      static uint16_t zeros[512];
      static float out[256];
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      _tile_zero(4);
      _tile_loadd(5, zeros, 64);
      _tile_loadd(6, zeros, 64);
      for (int turn = 0; turn < 8000; ++turn) {
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 6);
        _tile_dpbf16ps(4, 5, 6);
      }
      _tile_stored(0, out, 64);
      _tile_release();
    });
#endif
  walking("latency.small", 256, 200000, 60);
  walking("latency.middle", 8192, 100000, 60);
  walking("latency.large", 262144, 50000, 15);
  walking("latency.memory", 16777216, 50000, 15);
  if (!wanted("memory-copy.rate")) return 0;
  size_t bytes = 64 << 20;
  auto shared = [=] { return (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0); };
  char *from = shared(), *to = shared();
  time_it(
      "memory-copy.rate", 15,
      [=] {
        for (size_t i = 0; i < bytes; i += 64) _mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));
      },
      [=] { std::thread([=] { std::memset(from, 1, bytes), std::memset(to, 2, bytes); }).join(); });
}
