"""The system calls that a sandbox's processes may make: an allow-list, with the arguments that matter.

Calls that are not listed do not exist in a sandbox. There are four kinds: `kernel` (a candidate on a CPU), `device`
(one on a GPU, whose driver needs more calls), `tool` (a compiler or another program that works on files) and `profiler`
(a tool that may also trace processes and talk to them over the loopback interface, if its sandbox has namespaces and so
no other process to trace or to talk to). Left out on purpose, because sandboxes could communicate by files that all of
them may read: record locks, leases and file notifications, extended attributes, contents of the page cache, direct
reads. Left out because they work while another sandbox is being timed: timers that send signals, asynchronous input and
output. Locks and hints that honest libraries need are accepted and ignored, because nobody else can have those files.
"""

import errno
from typing import NamedTuple

KINDS = ("kernel", "device", "tool", "profiler")
PROGRAMS = ("tool", "profiler")  # run a program of this machine, and are never limited to one process

_FILES = """
read write readv writev pread64 pwrite64 preadv pwritev open openat creat close close_range lseek dup dup2 dup3 stat
fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getcwd chdir fchdir mkdir mkdirat rmdir
rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mknod mknodat truncate ftruncate
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes futimesat utimensat getdents
getdents64 statfs fstatfs fsync fdatasync sendfile copy_file_range pipe pipe2 poll ppoll select pselect6
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2 eventfd
eventfd2 signalfd signalfd4 memfd_create
"""
_MEMORY = """
mmap munmap mprotect mremap brk msync mlock mlock2 munlock mlockall munlockall pkey_mprotect pkey_alloc pkey_free
mseal map_shadow_stack membarrier get_mempolicy
"""
_PROCESSES = """
arch_prctl set_tid_address set_robust_list get_robust_list rseq futex sched_yield sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu getpid
getppid gettid getpgid getpgrp getsid setsid setpgid getuid geteuid getgid getegid getresuid getresgid getgroups
capget getpriority ioprio_get getrlimit setrlimit prlimit64 getrusage times uname execve execveat exit
exit_group wait4 waitid kill tgkill tkill pidfd_open pidfd_send_signal rt_sigaction rt_sigprocmask rt_sigpending
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause restart_syscall
clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getitimer getrandom setuid setgid setreuid
setregid setresuid setresgid
"""  # programs such as make and shells set their own user again; a sandbox's user has no right to become another one
_SOCKETS = """
listen accept accept4 getsockname getpeername getsockopt setsockopt shutdown sendto recvfrom sendmsg recvmsg
sendmmsg recvmmsg
"""  # sockets are local; without namespaces there are only pairs
_OWN_NAMESPACES = """
bind connect shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
mq_timedsend mq_timedreceive mq_notify mq_getsetattr
"""  # in namespaces only: the machine's services listen on local sockets, and SysV objects outlive their makers
_FOR_TOOLS = """
flock setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create
timerfd_settime timerfd_gettime inotify_init inotify_init1 inotify_add_watch inotify_rm_watch splice tee mincore
"""
_FOR_PROFILERS = "ptrace process_vm_readv process_vm_writev"
_FOR_DEVICES = "mbind set_mempolicy set_mempolicy_home_node"
_IGNORED = """
ioprio_set sched_setaffinity sched_setattr sched_setparam sched_setscheduler setpriority fadvise64 readahead sync syncfs
sync_file_range flock mbind set_mempolicy set_mempolicy_home_node alarm
"""  # the judge places sandboxes on cores; a thread pool that pins its threads gets a success
_UNKNOWN = """
clone3 openat2 preadv2 pwritev2 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch mincore cachestat splice
tee vmsplice io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents memfd_secret futex_waitv futex_wake
futex_wait futex_requeue statmount listmount setitimer timer_create timer_settime timer_gettime timer_getoverrun
timer_delete timerfd_create timerfd_settime timerfd_gettime seccomp landlock_create_ruleset landlock_add_rule
landlock_restrict_self
"""  # answered as on a kernel that lacks them: programs have another way
_ATTRIBUTES = """
setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr
listxattrat removexattr lremovexattr fremovexattr removexattrat
"""  # answered as on a file system that has none

_DESCRIPTORS = (0, 1, 2, 3, 4, 9, 1030, 1032, 1033, 1034)  # fcntl: duplicates, flags, the size of a pipe, seals
_LOCKS = (6, 7, 37, 38)  # fcntl: record locks, of processes and of open files, set and awaited
_TERMINALS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""ioctl: terminal or not, width, bytes to read, blocking mode, close on exec."""
_OPTIONS = (1, 2, 3, 4, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 41, 42, 47, 50, 51, 52, 55, 56, 63, 64, 0x53564D41)
"""prctl: signals at a parent's end, dumpable, names, slack of timers, new privileges, orphans, huge pages, vector
lengths, tagged addresses, names of memory; and queries."""
_ADVICE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 22, 23, 24)
"""madvise: all but sharing equal pages, moving pages out, poisoning them, making a file's pages huge, and punching
holes in a file, which in shared memory read as zeros that nobody wrote."""
_REMOVE = 9
_ALLOCATE = (0, 1)  # fallocate: allocation within or beyond the size; no holes
_SET_TRACER = 0x59616D61
_LOCAL = (1,)
_LOCAL_OR_LOOPBACK = (1, 2)  # families of sockets: local, IPv4
_SAME_PERSONALITY = (0xFFFFFFFF,)


class ArgumentCheck(NamedTuple):
    """A call whose lower 32 bits of one argument decide."""

    call: str
    argument: int
    allowed: tuple[int, ...]
    otherwise: int  # the error for other values
    ignored: tuple[int, ...] = ()  # values that succeed without any effect


class Policy(NamedTuple):
    """Policy of one kind of sandbox. Every other call is refused with EPERM."""

    allowed: tuple[str, ...]
    answers: dict[str, int]  # call -> the error that it gets without being made; 0 for success
    checks: tuple[ArgumentCheck, ...]


def policy(kind: str, private: bool) -> Policy:
    """Return the policy of one of KINDS; `private`: its sandboxes have namespaces of their own."""
    allowed = set((_FILES + _MEMORY + _PROCESSES + _SOCKETS).split())
    allowed |= set(_OWN_NAMESPACES.split()) if private else set()
    allowed |= set(_FOR_TOOLS.split()) if kind in PROGRAMS else set()
    traces = private and kind == "profiler"
    allowed |= set(_FOR_PROFILERS.split()) if traces else set()
    allowed |= set(_FOR_DEVICES.split()) if kind != "kernel" else set()
    answers = dict.fromkeys(_ATTRIBUTES.split(), errno.EOPNOTSUPP)
    answers |= dict.fromkeys(_UNKNOWN.split(), errno.ENOSYS) | dict.fromkeys(_IGNORED.split(), 0)
    checks = [
        ArgumentCheck("socketpair", 0, _LOCAL, errno.EAFNOSUPPORT),
        ArgumentCheck("personality", 0, _SAME_PERSONALITY, errno.EPERM),
        ArgumentCheck("madvise", 2, (*_ADVICE, _REMOVE) if kind in PROGRAMS else _ADVICE, errno.EINVAL),
        ArgumentCheck("prctl", 0, (*_OPTIONS, _SET_TRACER) if traces else _OPTIONS, errno.EINVAL),
    ]
    if private:
        families = _LOCAL_OR_LOOPBACK if traces else _LOCAL
        checks.append(ArgumentCheck("socket", 0, families, errno.EAFNOSUPPORT if traces else errno.EPERM))
    if kind in PROGRAMS:
        allowed |= {"fcntl", "fallocate"}
    else:
        checks.append(ArgumentCheck("fallocate", 1, _ALLOCATE, errno.EOPNOTSUPP))
        checks.append(ArgumentCheck("fcntl", 1, _DESCRIPTORS, errno.EINVAL, ignored=_LOCKS))
    if kind == "kernel":
        checks.append(ArgumentCheck("ioctl", 1, _TERMINALS, errno.ENOTTY))
    else:
        allowed |= {"ioctl"}
    rest = {call: error for call, error in answers.items() if call not in allowed}
    return Policy(tuple(sorted(allowed)), rest, tuple(checks))
