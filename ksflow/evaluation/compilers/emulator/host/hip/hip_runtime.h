// HIP's device side on a CPU: a kernel's unmodified source becomes ordinary C++ that this runs, one block at a time.
//
// Every work-item is a fibre. A wave's 64 fibres meet at operations across lanes, which are then done for all of them.
// Waves run one after another from barrier to barrier, in reverse order in every second phase, and shared memory
// begins as NaN: a barrier that is missing shows. Arguments whose shape is declared lie in memory of their own, which
// ends where nobody may read or write. Covered: what the folder's headers define. NOT covered: races in a
// wave that its lock-step would hide or show, the hardware's rounding order, waits for copies that are under way.
//
// Defined before: KSFLOW_FNUZ, 1 where the chip's 8-bit floats are the fnuz ones (gfx940 to gfx942).
#pragma once
#include <csignal>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <source_location>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static __attribute__((section("ksflow_shared"), aligned(16)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define HIP_DYNAMIC_SHARED(type, name) type *name = ksflow::Pointer{ksflow::dynamic_shared};
#ifdef __clang__
#define KSFLOW_VECTOR(T, N) ext_vector_type(N)
#else
#define KSFLOW_VECTOR(T, N) vector_size((N) * sizeof(T))
#endif

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 64;

// -- work-items as fibres -------------------------------------------------------------------------

#if defined(__x86_64__)
// Saves what a call must keep, changes the stack, and goes on where the other one was left.
asm(R"(
.text
.hidden ksflow_switch
.globl ksflow_switch
.type ksflow_switch, @function
ksflow_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ksflow_switch, .-ksflow_switch
)");
extern "C" void ksflow_switch(void **from, void *to);
#endif

namespace ksflow {

typedef std::source_location Site;
typedef void *const *Lanes;  // one pointer for each lane of a wave, null where it does not take part
enum State { READY, MEETING, BARRIER, DONE };

constexpr unsigned WAVE = 64, MOST_THREADS = 1024;
constexpr size_t STACK = 64 * 1024, STRIDE = STACK + 13 * 64;  // stacks that start at one offset share cache lines
constexpr uint64_t CANARY = 0x5a17ed5a17ed5a17;
constexpr size_t MOST_SHARED = 160 * 1024;

struct Fibre {
  dim3 thread;
  State state;
  Site site;
  void (*operation)(Lanes);
  void *data;  // what the operation reads and writes, on the fibre's stack
#if defined(__x86_64__)
  void *stack;
#else
  ucontext_t context;
#endif
};

struct Pointer {
  void *address;
  template <class T> operator T *() const { return (T *)address; }
};

static Fibre fibres[MOST_THREADS], *self, scheduler;
alignas(64) static char stacks[(1 + MOST_THREADS) * STRIDE];  // room below the first, too, for one that grows too long
alignas(128) static char dynamic_shared[MOST_SHARED];
__attribute__((section("ksflow_shared"), used, aligned(16))) static char anchor[16];
extern "C" char __start_ksflow_shared[] __attribute__((visibility("hidden")));
extern "C" char __stop_ksflow_shared[] __attribute__((visibility("hidden")));
static void (*body)(void *);
static void *body_data;

[[noreturn]] __attribute__((format(printf, 1, 2))) static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("emulator: ", stderr);
  vfprintf(stderr, format, arguments);
  if (self) fprintf(stderr, " (block %u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z);
  fputc('\n', stderr);
  abort();
}

__attribute__((noinline)) static void change(Fibre &from, Fibre &to) {
#if defined(__x86_64__)
  ksflow_switch(&from.stack, to.stack);
#else
  swapcontext(&from.context, &to.context);
#endif
}

static void enter() {
  body(body_data);
  self->state = DONE;
  change(*self, scheduler);
  __builtin_unreachable();
}

static char *stack_end(const Fibre &fibre) { return stacks + (1 + &fibre - fibres) * STRIDE; }

static void prepare(Fibre &fibre, unsigned index) {
  char *low = stack_end(fibre);
  memcpy(low, &CANARY, sizeof CANARY);
#if defined(__x86_64__)
  void **top = (void **)(low + STACK) - 2;  // so that the stack is aligned as a call leaves it
  top[0] = (void *)enter;
  top[1] = nullptr;
  fibre.stack = top - 6;
#else
  getcontext(&fibre.context);
  fibre.context.uc_stack = {low, 0, STACK};
  makecontext(&fibre.context, enter, 0);
#endif
  fibre.state = READY;
  fibre.thread = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
}

static void resume(Fibre &fibre) {
  self = &fibre;
  threadIdx = fibre.thread;
  change(scheduler, fibre);
  if (memcmp(stack_end(fibre), &CANARY, sizeof CANARY)) fail("a thread needs more than %zu bytes of stack", STACK);
}

static unsigned lane() { return unsigned(self - fibres) % WAVE; }

static void stop(State state, const Site &site) {
  self->site = site;
  self->state = state;
  change(*self, scheduler);
}

// Hands `data` to an operation across the wave, and comes back when it is done.
static void meet(void (*operation)(Lanes), void *data, const Site &site) {
  self->operation = operation;
  self->data = data;
  stop(MEETING, site);
}

static bool before(const Site &a, const Site &b) {
  return a.line() != b.line() ? a.line() < b.line() : a.column() < b.column();
}
static bool same(const Site &a, const Site &b) { return a.line() == b.line() && a.column() == b.column(); }

// Runs a wave until all its lanes wait at a barrier or have ended. Of lanes that diverged, those that stand earliest in
// the source go on first: the others wait for them where the branches join.
static void run_wave(Fibre *first, unsigned count) {
  for (;;) {
    Fibre *leader = nullptr;
    for (Fibre *fibre = first; fibre < first + count; ++fibre) {
      if (fibre->state == READY) resume(*fibre);
      if (fibre->state == MEETING && (!leader || before(fibre->site, leader->site))) leader = fibre;
    }
    if (!leader) return;
    void *data[WAVE] = {};
    for (Fibre *fibre = first; fibre < first + count; ++fibre)
      if (fibre->state == MEETING && fibre->operation == leader->operation && same(fibre->site, leader->site)) {
        data[fibre - first] = fibre->data;
        fibre->state = READY;
      }
    leader->operation(data);
  }
}

// Whether the block goes on: all threads that have not ended wait at one barrier, which lets them pass.
static bool pass_barrier(unsigned threads) {
  const Fibre *first = nullptr;
  for (unsigned i = 0; i < threads; ++i) {
    Fibre &fibre = fibres[i];
    if (fibre.state == DONE) continue;
    if (!first) first = &fibre;
    if (!same(first->site, fibre.site))
      fail("not all threads arrive at one barrier: thread %d waits at line %u, thread %u at line %u",
           int(first - fibres), first->site.line(), i, fibre.site.line());
    fibre.state = READY;
  }
  return first;
}

static void run_block(unsigned shared) {
  memset(__start_ksflow_shared, 0xff, __stop_ksflow_shared - __start_ksflow_shared);
  memset(dynamic_shared, 0xff, shared);
  unsigned threads = blockDim.x * blockDim.y * blockDim.z, waves = (threads + WAVE - 1) / WAVE;
  for (unsigned i = 0; i < threads; ++i) prepare(fibres[i], i);
  bool reversed = false;
  do {
    for (unsigned i = 0; i < waves; ++i) {
      unsigned from = (reversed ? waves - 1 - i : i) * WAVE;
      run_wave(fibres + from, threads - from < WAVE ? threads - from : WAVE);
    }
    reversed = !reversed;
  } while (pass_barrier(threads));
}

template <class F> static void launch(dim3 grid, dim3 block, unsigned shared, F kernel) {
  gridDim = grid, blockDim = block, blockIdx = {0, 0, 0};
  if (block.x * block.y * block.z > MOST_THREADS) fail("a block of more than %u threads", MOST_THREADS);
  if (shared > MOST_SHARED) fail("%u bytes of shared memory; there are %zu", shared, MOST_SHARED);
  body = [](void *data) { (*(F *)data)(); };
  body_data = &kernel;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block(shared);
  self = nullptr;
}

// -- memory whose ends are in sight ---------------------------------------------------------------

constexpr size_t PAGE = 4096, GUARD = 16 * PAGE, ALIGNED = 64;
constexpr unsigned MOST_ROOMS = 1024;

// A tensor from `start` to `end`, in pages from `low` to `high` between others that nobody may touch. What is left of
// its own pages holds 0xff.
struct Room {
  const char *name;
  char *low, *start, *end, *high;
};
static Room rooms[MOST_ROOMS];
static unsigned room_count;

[[noreturn]] static void astray(const Room &room, const char *at) {
  if (at < room.start) fail("%s: touches memory %td bytes before it", room.name, room.start - at);
  fail("%s: touches memory %td bytes past its end", room.name, at - room.end);
}

static void on_fault(int number, siginfo_t *found, void *) {
  char *at = (char *)found->si_addr;
  for (unsigned i = 0; i < room_count; ++i)
    if (at >= rooms[i].low - GUARD && at < rooms[i].high + GUARD) astray(rooms[i], at);
  signal(number, SIG_DFL);
}

static const Room *make_room(const char *name, size_t bytes) {
  size_t inside = (bytes + ALIGNED + PAGE - 1) / PAGE * PAGE;
  void *made = mmap(nullptr, inside + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *low = (char *)made + GUARD;
  if (made == MAP_FAILED || mprotect(low, inside, PROT_READ | PROT_WRITE) || room_count == MOST_ROOMS)
    fail("no memory for %s, of %zu bytes", name, bytes);
  memset(low, 0xff, inside);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  Room &room = rooms[room_count++];
  char *start = low + inside - (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
  room = {name, low, start, start + bytes, low + inside};
  return &room;
}

// How many elements lie from a tensor's first to its last.
static size_t span(std::initializer_list<int64_t> sizes, const int64_t *strides) {
  size_t last = 0;
  for (int64_t size : sizes) {
    if (!size) return 0;
    last += (size - 1) * *strides++;
  }
  return last + 1;
}

static void *enter_room(const Room *room, const void *from) {
  return memcpy(room->start, from, room->end - room->start);
}

static void leave_room(const Room *room, const void *to) {
  for (char *at = room->low; at < room->high; ++at) {
    if (at == room->start) at = room->end;
    if (at < room->high && *at != char(0xff)) astray(*room, at);
  }
  memcpy((void *)to, room->start, room->end - room->start);
}

static void *workspace(size_t bytes) { return make_room("a workspace", bytes)->start; }

}  // namespace ksflow

#define KSFLOW_FN static inline __attribute__((unused))
#define KSFLOW_SITE , ksflow::Site site = ksflow::Site::current()
#define KSFLOW_AT , site

KSFLOW_FN void __syncthreads(ksflow::Site site = ksflow::Site::current()) { ksflow::stop(ksflow::BARRIER, site); }
KSFLOW_FN void __threadfence() {}
KSFLOW_FN void __threadfence_block() {}
KSFLOW_FN void __threadfence_system() {}

#include "ksflow_builtins.h"
#include "ksflow_matrix.h"

#include "ksflow_common.h"

// The C library has functions of these names that it tells nobody of.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
