"""A child that is hard to stop. Each argument starts one process, whose pid is printed as `<word> <pid>`.

plain      a child in the same group            setsid     a child that left group and session
double     a grandchild whose parent has gone   holds      like setsid, and keeps our stdout open
deaf       ignores SIGTERM, SIGINT and SIGHUP in this process and in those started after it
exit       ends this process at once, leaving the others
"""

import os
import signal
import sys
import time


def make(word: str) -> None:
    if word == "plain":
        pid = os.fork()
    else:
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            os.setsid()
            pid = os.fork()
            if pid == 0:
                os.close(writing)
                linger(keep_output=word == "holds")
            os.write(writing, str(pid).encode())
            os._exit(0)
        os.close(writing)
        pid = int(os.read(reading, 20))
        os.waitpid(middle, 0)
    if pid == 0:
        linger(keep_output=False)
    print(word, pid, flush=True)


def linger(*, keep_output: bool) -> None:
    if not keep_output:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    while True:
        time.sleep(60)


print("leader", os.getpid(), flush=True)
for word in sys.argv[1:]:
    if word == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    elif word == "exit":
        print("ready", flush=True)
        os._exit(7)
    else:
        make(word)
print("ready", flush=True)
while True:
    time.sleep(60)
