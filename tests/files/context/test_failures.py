"""Recent failures: the last one of each task, until it succeeds or is a day old."""

from rookery.files.context.failures import FailureLog, FailureRecord, build_failure_sections
from tests.support.clock import SetClock
from tests.support.requirements import requirement


@requirement("context.get.aggregate")
def test_the_last_failure_of_each_task_is_kept_until_it_succeeds_or_for_a_day() -> None:
    clock = SetClock()
    failures = FailureLog(clock)
    failures.add("just test", "exit code 1", "first\n")
    clock.now = 60.0
    failures.add("just lint", "exit code 2", "".join(f"{number}\n" for number in range(100)))
    failures.add("just test", "exit code 3", "second\n")
    assert [one.what for one in failures.recent()] == ["just test", "just lint"]
    test, lint = build_failure_sections(failures.recent())
    assert (test.key, test.text) == ("failures/just test", "exit code 3 (1970-01-01 00:01:00 UTC)\nsecond\n")
    assert lint.text.splitlines()[1] == "60" and lint.text.endswith("\n99\n")
    failures.clear("just lint")
    assert [one.what for one in failures.recent()] == ["just test"]
    clock.now = 60.0 + 86_401
    assert failures.recent() == []


def test_only_so_many_are_kept_the_newest_of_them() -> None:
    failures = FailureLog(SetClock())
    for number in range(50):
        failures.add(str(number), "failed")
    assert [one.what for one in failures.recent()] == [str(number) for number in range(49, 29, -1)]
    assert [one.priority for one in build_failure_sections(failures.recent())] == [1] * 3 + [4] * 17


def test_of_long_lines_the_end_is_told() -> None:
    (section,) = build_failure_sections([FailureRecord("just test", "exit code 1", ["x" * 9_000, "the reason"])])
    assert section.text.startswith("exit code 1\nxxx") and section.text.endswith("xxx\nthe reason\n")
    assert len(section.text) < 6_100


def test_a_failure_of_which_nobody_knows_when_it_was_has_no_time() -> None:
    (section,) = build_failure_sections([FailureRecord("setup", "it ended with 1", ["no compiler"])])
    assert section.text == "it ended with 1\nno compiler\n" and section.untrusted
