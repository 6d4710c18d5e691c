# expect: reject
# problem: row_norm
# Sends bytes that are no words, no text and no JSON.
import os
import socket


def custom_kernel(data):
    for fd in range(256):
        try:
            with socket.socket(fileno=os.dup(fd)) as line:
                for word in (b"\xff\xfe\0\x80", b"", b"{", b"done\0done", bytes(range(256))):
                    line.send(word, socket.MSG_DONTWAIT)
        except OSError:
            pass
    return data[1].zero_()
