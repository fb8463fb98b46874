"""`python -m bench [NAME]`: print one line per figure; exit with 1 if one misses its bar, with 2 if NAME is unknown."""

import signal
import sys
from importlib import import_module
from pathlib import Path


def main(names: list[str]) -> int:
    # Exit as on Ctrl-C, so that every `finally` runs: the servers have sessions of their own and would keep running.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    modules = {file.stem: import_module(f"bench.{file.stem}") for file in files}
    runs = {name: module.run for name, module in modules.items() if hasattr(module, "run")}
    if unknown := [name for name in names if name not in runs]:
        sys.stderr.write(f"there is no bench {unknown[0]!r}; there are: {', '.join(runs)}\n")
        return 2
    good = True
    for name in names or runs:
        for bar in runs[name]():
            print(bar, flush=True)
            good = good and bar.ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
