"""`python -m tests`: run pytest with the arguments, and if a single test failed, run it once more, alone.

Hundreds of these tests watch several real processes at once, and on a machine that pauses at the wrong moment one of
them may fail for no reason in the code. A test that passes the second time is named in the output and in
`flaky-tests.txt`, and still has to be fixed. Two or more failures end the run.
"""

import sys
from pathlib import Path

import pytest

# More failures than this do not happen by chance.
MAX_RETRIES = 1
REPORT = Path("flaky-tests.txt")


class Failures:
    """A pytest plugin that collects the ids of failed tests, and shows each failure at once."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None
            text = report.longreprtext.rstrip().splitlines()
            # The whole report follows at the end, which may be half an hour away.
            reason = next((line for line in text if line.startswith("E ")), text[-1] if text else "")
            print(f"\nfailed: {report.nodeid} ({report.when}): {reason.removeprefix('E').strip()[:200]}", flush=True)


def main(arguments: list[str]) -> int:
    """Run the tests and return the exit code."""
    REPORT.unlink(missing_ok=True)
    failures = Failures()
    code = pytest.main(arguments, plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.tests) <= MAX_RETRIES:
        return code
    tests = list(failures.tests)
    print(f"\nonce more, alone: {', '.join(tests)}", flush=True)
    code = pytest.main(["-n", "0", *tests])
    if code == pytest.ExitCode.OK:
        print(f"passed the second time only, and to be mended: {', '.join(tests)}", flush=True)
        REPORT.write_text("".join(f"{test}\n" for test in tests))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
