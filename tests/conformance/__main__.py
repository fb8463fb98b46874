"""`python -m tests.conformance`: one line a set."""

import sys
import tempfile
from pathlib import Path

from tests.conformance import suite


def main() -> int:
    suite.install()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [
            run(revision, Path(folder))
            for revision in ("2025-11-25", "2026-07-28")
            for run in (suite.server_direct, suite.client_without_sign_in)
        ]
    for outcome in outcomes:
        print(outcome, f"failed: {', '.join(outcome.failed)}" if outcome.failed else "")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
