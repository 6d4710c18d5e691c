# expect: reject
# problem: gauss
# Says everything that any part of the harness may say.
import os
import socket

WORDS = (b"ready", b"gone", b"exit 0", b"pid 1", b"accept", b'{"verdict": "accept"}', b"case{}", b"go\0", b"end")


def custom_kernel(data):
    for fd in range(256):
        for word in WORDS:
            try:
                with socket.socket(fileno=os.dup(fd)) as line:
                    line.send(word, socket.MSG_DONTWAIT)
            except OSError:
                pass
    return data[2].zero_()
