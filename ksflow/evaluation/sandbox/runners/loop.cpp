// Calls a kernel as the judge asks for it. Beside the kernel a call costs a receive and a send here, and nothing that a
// kernel could leave out. `cpu.py` loads it; how messages look is said there.
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

constexpr std::size_t MOST = 64;  // arguments; who takes fewer ignores the rest
constexpr long HEAD = 2 + 8;      // a word and a number

template <std::size_t... I>
static void call(void *kernel, const std::int64_t *arguments, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(decltype(I, std::int64_t{})...)>(kernel)(arguments[I]...);
}

/// Answers calls until something else is asked: how many bytes of it are in `message`, or less than 1 at the end.
/// `arguments`: MOST of them for each slot.
extern "C" long serve(int judge, char *message, long capacity, void *kernel, const std::int64_t *arguments, long slots) {
  for (;;) {
    long size = recv(judge, message, capacity, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < HEAD || std::memcmp(message, "go", 2) != 0) return size;
    for (long at = HEAD; at < size; at++) {
      long slot = static_cast<unsigned char>(message[at]);
      if (slot >= slots) return -1;
      call(kernel, arguments + slot * MOST, std::make_index_sequence<MOST>{});
    }
    std::memcpy(message, "ok", 2);
    if (send(judge, message, HEAD, 0) < 0) return -1;
  }
}
