"""A stdio server that a test controls: the test receives what it reads, and determines what it prints.

scripted_server.py SOCKET NAME [words]
It writes JSON lines to the Unix socket: first its identity, then {"in": line} for each line of stdin, {"eof": true},
and {"made": pid} for each requested process. It reads commands from it, one JSON object for each line:
{"fd": 1 or 2, "text": text, "times": n}    {"exit": code}    {"close": fd}
{"make": "plain" or "holds"}: start a process in a separate session; with "holds" it keeps our output open
{"deaf": true}: the end of stdin and SIGTERM are ignored from now on
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

strings = socket.socket(socket.AF_UNIX)
strings.connect(sys.argv[1])
lock = threading.Lock()
deaf = threading.Event()


def tell(**facts: Any) -> None:
    with lock:
        strings.sendall(json.dumps(facts).encode() + b"\n")


def write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def make(how: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    strings.close()
    if how != "holds":
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    while True:
        time.sleep(60)


def read_stdin() -> None:
    for line in sys.stdin.buffer:
        tell(**{"in": line.decode("utf-8", "surrogateescape")})
    tell(eof=True)
    if not deaf.is_set():
        os._exit(0)


def obey(command: Any) -> None:
    if "fd" in command:
        data = command["text"].encode("utf-8", "surrogateescape")
        for _ in range(command["times"]):
            write(command["fd"], data)
    elif "exit" in command:
        os._exit(command["exit"])
    elif "close" in command:
        os.close(command["close"])
    elif "make" in command:
        tell(made=make(command["make"]))
    elif "deaf" in command:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf.set()


tell(pid=os.getpid(), name=sys.argv[2], words=sys.argv[3:], env=dict(os.environ), cwd=str(Path.cwd()))
threading.Thread(target=read_stdin, daemon=True).start()
try:
    for order in strings.makefile("rb"):
        obey(json.loads(order))
except ConnectionError:
    pass
os._exit(0)
