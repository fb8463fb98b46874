"""Fault points, at which a test can kill the process to check the recovery from a crash.

`fault_point` is called between the steps of an operation that has to survive a crash. It does nothing unless the
environment variable ROOKERY_FAULT names the step: then the process ends at once, as by `kill -9`. With `raise:` before
the name the step raises an error instead, once in the life of the process. Only tests set the variable.
"""

import os
import signal

FAULT_VARIABLE = "ROOKERY_FAULT"
_RAISE = "raise:"
_raised: set[str] = set()


async def fault_point(name: str) -> None:
    """Mark that the work up to `name`, such as `delete.moved`, is done, and fail here if a test requires it."""
    setting = os.environ.get(FAULT_VARIABLE)
    if setting == name:
        os.kill(os.getpid(), signal.SIGKILL)
    if setting == f"{_RAISE}{name}" and name not in _raised:
        _raised.add(name)
        raise RuntimeError(f"the fault point {name} was asked to fail")
