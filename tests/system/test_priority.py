"""A process that lets others go first."""

import os
import subprocess
import sys


def test_a_process_that_steps_back_is_willing_to_wait() -> None:
    code = "import os; from rookery.system.priority import step_back; step_back(); print(os.nice(0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == min(os.nice(0) + 5, 19)
