# expect: contained
# problem: gauss
# Never gets ready.
import signal
import threading

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
threading.Event().wait()
