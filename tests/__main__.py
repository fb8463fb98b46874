"""`python -m tests`: every test, with what pytest is told. Few that fail are run once more, alone.

Hundreds of these tests watch several real processes at once, and on a machine that stands still at the wrong moment
one may fail that has nothing to do with the change at hand. What passes the second time is named, and is to be mended
all the same.
"""

import sys

import pytest

# More than so many do not fail by chance.
MOST = 3


class Failures:
    """A plugin that remembers what failed."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None


def main(told: list[str]) -> int:
    failures = Failures()
    code = pytest.main(told, plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.tests) <= MOST:
        return code
    again = list(failures.tests)
    print(f"\nonce more, alone: {', '.join(again)}", flush=True)
    code = pytest.main(["-n", "0", *again])
    if code == pytest.ExitCode.OK:
        print(f"passed the second time only, and to be mended: {', '.join(again)}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
