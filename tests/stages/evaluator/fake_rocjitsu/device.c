// A stand-in for rocjitsu's half of a process: it is preloaded, answers at /dev/kfd by Linux' own header, reads a queue's
// packets and does what kernels of a few names do. It cannot run machine code: it finds a kernel's name in the code
// object, checks that the launch is what such a kernel needs, and computes the answer in C.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GPU = 50148, RING = 4096 };
typedef struct {
  uint16_t header, dimensions, threads[3], none;
  uint32_t grid[3], private_bytes, shared_bytes;
  char *descriptor;
  char *arguments;
  uint64_t no;
  volatile int64_t *signal;
} Packet;

static int kfd = -1;
static volatile uint64_t *bell, *written;
static Packet *ring;
static pthread_t worker;

static void fail(const char *what) {
  fprintf(stderr, "fake rocjitsu: %s\n", what);
  _exit(3);
}

static const char *name_of(char *descriptor) {  // by the dynamic symbols of the object that lies around it
  char *base = (char *)((uintptr_t)descriptor & ~4095ul);
  while (memcmp(base, ELFMAG, SELFMAG)) base -= 4096;
  Elf64_Ehdr *head = (Elf64_Ehdr *)base;
  Elf64_Phdr *part = (Elf64_Phdr *)(base + head->e_phoff);
  Elf64_Sym *symbols = 0;
  char *names = 0;
  uint32_t count = 0;
  for (int i = 0; i < head->e_phnum; ++i)
    if (part[i].p_type == PT_DYNAMIC)
      for (Elf64_Dyn *entry = (Elf64_Dyn *)(base + part[i].p_vaddr); entry->d_tag; ++entry) {
        char *at = base + entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) symbols = (Elf64_Sym *)at;
        if (entry->d_tag == DT_STRTAB) names = at;
        if (entry->d_tag == DT_HASH) count = ((uint32_t *)at)[1];
      }
  for (uint32_t i = 0; i < count; ++i)
    if (base + symbols[i].st_value == descriptor) return names + symbols[i].st_name;
  fail("the descriptor of no kernel");
  return 0;
}

static void run(Packet *packet) {
  const char *name = name_of(packet->descriptor);
  float **arg = (float **)packet->arguments;
  int is(const char *word) { return !strncmp(name, word, strlen(word)); }
  if (*(uint32_t *)(packet->descriptor + 8) > 256 + 64 || packet->header != 0x1502) fail("not a packet of a kernel");
  if (is("sum")) {
    for (int i = 0; i < 256; ++i) arg[2][i] = arg[0][i] + arg[1][i];
  } else if (is("add")) {  // of the tests' own problem
    uint64_t n = ((int *)arg)[6];
    if (packet->grid[0] < n) fail("too few threads");
    for (uint64_t i = 0; i < n; ++i) arg[2][i] = arg[0][i] + arg[1][i] + (is("add_wrong") && i == n - 1);
    if (is("add_endless")) for (;;) pause();
    if (is("add_unknown")) _exit(0);
    if (is("add_racy") && getenv("RJ_RACE"))
      fprintf(stderr, "RACE kernel=add symbol=add dispatch=1 type=LDS\nRace on LDS byte 4 [workgroup (0, 0, 0), wave 0, lane 0]\n"
                      "  ==>  ds_write_b32 v0, v1  ; <-- wave 1\n  ==>  ds_read_b32 v1, v1  ; <-- wave 0 lane 0\nEND_RACE\n");
  } else if (is("product")) {
    for (int i = 0; i < 256; ++i)
      for (int k = arg[2][256 + i] = 0; k < 4; ++k) arg[2][256 + i] += arg[0][i / 16 * 4 + k] * arg[1][k * 16 + i % 16];
  } else if (is("count")) {
    memset(arg[1] + 512, 0, 64);
    for (int i = 0; i < 256; ++i) arg[1][512 + i * 7 % 16] += getenv("FAKE_ROCJITSU_OLD") ? 0 : arg[0][i];
  } else if (is("planted_race")) {
    if (getenv("RJ_RACE")) fprintf(stderr, "Race on LDS byte 508\n");
  } else fail(name);
}

static void *work(void *none) {
  for (uint64_t next = 0;; ++next) {
    while (*bell != next) usleep(200);
    Packet *packet = ring + next % (RING / sizeof(Packet));
    if (*written != next + 1) fail("the queue's descriptor does not say what was written");
    run(packet);
    packet->signal[1] -= 1;
  }
  return none;
}

static int opened(const char *name, const char *path, int flags, int mode) {
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
  return strcmp(path, "/dev/kfd") ? real(path, flags, mode) : (kfd = memfd_create("kfd", 0));
}
#define OPEN(name)                                                                                                     \
  int name(const char *path, int flags, ...) {                                                                         \
    va_list more;                                                                                                      \
    va_start(more, flags);                                                                                             \
    return opened(#name, path, flags, va_arg(more, int));                                                              \
  }
OPEN(open)
OPEN(open64)

int ioctl(int fd, unsigned long request, ...) {
  va_list more;
  va_start(more, request);
  void *what = va_arg(more, void *);
  int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
  if (fd != kfd || fd < 0) return real(fd, request, what);
  if (request == AMDKFD_IOC_GET_PROCESS_APERTURES_NEW) {
    struct kfd_ioctl_get_process_apertures_new_args *asked = what;
    ((struct kfd_process_device_apertures *)asked->kfd_process_device_apertures_ptr)->gpu_id = GPU;
  } else if (request == AMDKFD_IOC_ACQUIRE_VM) {
    if (((struct kfd_ioctl_acquire_vm_args *)what)->gpu_id != GPU) fail("another GPU");
  } else if (request == AMDKFD_IOC_ALLOC_MEMORY_OF_GPU) {
    struct kfd_ioctl_alloc_memory_of_gpu_args *asked = what;
    if (!(asked->flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) || asked->va_addr % 4096) fail("not this memory");
    asked->handle = 7;
  } else if (request == AMDKFD_IOC_MAP_MEMORY_TO_GPU) {
    struct kfd_ioctl_map_memory_to_gpu_args *asked = what;
    if (asked->handle != 7 || *(uint32_t *)asked->device_ids_array_ptr != GPU) fail("not mapped");
  } else if (request == AMDKFD_IOC_CREATE_QUEUE) {
    struct kfd_ioctl_create_queue_args *asked = what;
    if (asked->queue_type != KFD_IOC_QUEUE_TYPE_COMPUTE_AQL || asked->ring_size != RING) fail("not this queue");
    ring = (Packet *)asked->ring_base_address;
    written = (uint64_t *)asked->write_pointer_address;
    asked->doorbell_offset = 3ull << 62 | 8;
  }  // what it does not know it answers as rocjitsu does: with nothing
  return 0;
}

void *mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset) {
  void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
  if (fd != kfd || fd < 0) return real(at, size, rights, flags, fd, offset);
  if (offset != (off_t)(3ull << 62)) fail("no doorbell there");
  char *page = real(0, size, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(page, 0xFF, size);
  bell = (uint64_t *)(page + 8);
  pthread_create(&worker, 0, work, 0);
  return page;
}
