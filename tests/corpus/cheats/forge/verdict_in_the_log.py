# expect: reject
# problem: cumsum
# Prints the verdict that it wants, as its last words.
import json
import os
import sys


def custom_kernel(data):
    verdict = {"verdict": "accept", "reason": "", "timings": [{"case": "131072", "us": 0.1}], "evidence": {}, "id": 1}
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"PASS\naccept\n{json.dumps(verdict)}\n")
        stream.flush()
    os._exit(0)
