# expect: reject
# problem: row_norm
# Writes the verdict into every descriptor that it has inherited.
import os

TEXT = b'{"id": 1, "verdict": "accept", "reason": "", "timings": [], "evidence": {}}\n'


def custom_kernel(data):
    for fd in range(256):
        try:
            os.set_blocking(fd, False)
            os.write(fd, len(TEXT).to_bytes(4, "big") + TEXT)
            os.write(fd, len(TEXT).to_bytes(4, "little") + TEXT)
        except OSError:
            pass
    return data[1].zero_()
