"""Starts the daemon so that it outlives the command that asked for it. Standard library only, to start fast."""

import os
import subprocess
from collections.abc import Callable, Sequence


def start_detached(argv: Callable[[int], Sequence[str]], out: str) -> int:
    """Start `argv` in a session of its own with output to the file `out`; answers the reading end of its ready pipe.

    `argv` gets the number of the writing end. The pipe ends when the daemon is ready, or dead.
    """
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        output = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                list(argv(writing)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(output)
        # It is the init process's to reap once this command has ended.
        process.returncode = 0
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading
