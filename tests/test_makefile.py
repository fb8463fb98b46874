"""The targets of the Makefile that no other test runs."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon.foreground import wait_for_line

ROOT = Path(__file__).parents[1]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
# Makes no environment before it is told to, and then fails as a Python without venv does.
_PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then read go < "{gate}"; exit 1; fi
exec "{python}" "$@"
"""


@needs_make
def test_set_up_shows_progress_while_the_first_step_is_still_under_way(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    python = tmp_path / "python"
    python.write_text(_PYTHON.format(gate=gate, python=sys.executable))
    python.chmod(0o755)
    with subprocess.Popen(["make", "setup", f"PYTHON={python}"], cwd=tmp_path, stderr=subprocess.PIPE) as made:
        assert made.stderr is not None
        seen = wait_for_line(made.stderr.fileno(), b"making .venv ... ")
        assert seen.startswith(b"Setting up .venv ...\n")
        # It goes on counting.
        wait_for_line(made.stderr.fileno(), b"making .venv ... ")
        gate.write_text("go\n")
        assert made.wait(60) == 2
        assert b"python3 has no venv module" in made.stderr.read()
    assert not (tmp_path / ".venv" / ".installed").exists()


@needs_make
def test_help_and_the_guide_list_every_target_and_the_soak_selects_what_repeats() -> None:
    def made(*words: str) -> str:
        argv = ["make", "--no-print-directory", *words]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout

    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^  make ([a-z-]+) +\S", made("help"), re.MULTILINE) == phony.split()
    assert re.findall(r"^\| `make ([a-z-]+)` \|", guide, re.MULTILINE) == phony.split()
    # Nothing is set up for it: the folder is taken for one in which that is done.
    planned = made("--dry-run", "--assume-old=.venv/.installed", "soak")
    assert planned.splitlines()[-1] == "ROOKERY_SOAK=1 .venv/bin/python -m tests -n 2 -m soak"


def test_a_test_that_takes_its_count_from_the_soak_is_selected_by_it() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^from tests\.support\.soak import", text, re.MULTILINE):
            names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert {"repetitions", "soak"} <= names, f"{path.name} uses one of `repetitions` and `soak` only"
