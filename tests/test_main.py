"""How `make unit` runs the tests: a single failure is retried once, and nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANCE = """
from pathlib import Path

def test_by_chance():
    was_here = Path("was here")
    seen = was_here.exists()
    was_here.touch()
    assert seen
"""


def suite(folder: Path, workers: int = 0, **files: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    # Should it ever hang, the stacks of its threads are in the output.
    argv = [
        sys.executable,
        "-m",
        "tests",
        "-n",
        str(workers),
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=60",
    ]
    # The run is its own, not a part of the one that this test is in.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout


def test_what_passes_when_it_is_run_alone_passes_and_is_named(tmp_path: Path) -> None:
    code, told = suite(tmp_path, workers=2, chance=CHANCE, fine="def test_fine(): pass")
    assert code == 0, told
    assert "1 failed, 1 passed" in told
    assert told.splitlines()[-1] == "passed the second time only, and to be mended: test_chance.py::test_by_chance"
    assert (tmp_path / "flaky-tests.txt").read_text() == "test_chance.py::test_by_chance\n"


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    code, told = suite(tmp_path, fine="def test_fine(): pass", wrong="def test_wrong(): assert False")
    assert code == 1 and "1 failed, 1 passed" in told and "once more" in told, told
    assert "to be mended" not in told and not (tmp_path / "flaky-tests.txt").exists()


def test_where_two_fail_none_is_given_a_second_try(tmp_path: Path) -> None:
    code, told = suite(tmp_path, chance=CHANCE, wrong="def test_wrong(): assert False")
    assert code == 1 and "once more" not in told, told


def test_what_cannot_be_imported_fails(tmp_path: Path) -> None:
    code, told = suite(tmp_path, broken="import nothing_of_that_name", fine="def test_fine(): pass")
    assert code != 0 and "to be mended" not in told, told


def test_a_failure_is_shown_before_the_other_tests_have_run(tmp_path: Path) -> None:
    code, told = suite(tmp_path, a="def test_wrong(): assert 1 == 2", b="def test_slow(): pass")
    assert code == 1
    at_once, _, rest = told.partition("== FAILURES ==")
    assert "failed: test_a.py::test_wrong (call): assert 1 == 2" in at_once and rest, told
