"""`python -m tests.conformance`: run the conformance suite and print one line for each set."""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.conformance import suite

RUNS: tuple[Callable[..., suite.Outcome], ...] = (
    suite.server_direct,
    partial(suite.server_through, transport="stdio"),
    partial(suite.server_through, transport="http"),
    suite.server_across,
    suite.client,
)


def main() -> int:
    suite.install()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [run(revision, output=Path(folder)) for revision in ("2025-11-25", "2026-07-28") for run in RUNS]
    for outcome in outcomes:
        print(outcome, f"failed: {', '.join(outcome.failed)}" if outcome.failed else "")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
