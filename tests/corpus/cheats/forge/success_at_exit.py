# expect: reject
# problem: matmul
# Ends with status 0 in the middle of a call, and says so from everything that runs at exit.
import atexit
import os
import socket
import threading


def claim():
    for fd in range(3, 64):
        try:
            socket.socket(fileno=os.dup(fd)).send(b"done")
        except OSError:
            pass
    os._exit(0)


class Last:
    def __del__(self):
        claim()


atexit.register(claim)
threading._register_atexit(claim)
last = Last()


def custom_kernel(data):
    raise SystemExit(0)
