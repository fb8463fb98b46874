"""Fault points: where a test may kill the process, so that what follows a crash is tried and not believed.

`step` is called between the steps of whatever must survive a crash. It does nothing, unless the environment variable
ROOKERY_FAULT names that step: then this process ends at once, as by `kill -9`. Only tests set it.
"""

import os
import signal

VARIABLE = "ROOKERY_FAULT"


async def step(name: str) -> None:
    """Mark that the work up to `name`, such as `delete.moved`, is done."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
