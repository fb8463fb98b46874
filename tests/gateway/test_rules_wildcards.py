"""Wildcards, compared with the regular expressions that OpenCode makes of them."""

import re
import time

import pytest
from hypothesis import given, strategies as st

from rookery.gateway.rules import matches_wildcard

FEW = st.text(st.sampled_from("ab_/\\. *?\n"), max_size=12)


def opencode(pattern: str, name: str) -> bool:
    """What OpenCode 1.18 does, which may take for ever."""
    escaped = re.sub(r"[.+^${}()|\[\]\\]", r"\\\g<0>", pattern.replace("\\", "/"))
    escaped = escaped.replace("*", ".*").replace("?", ".")
    if escaped.endswith(" .*"):
        escaped = escaped[:-3] + "( .*)?"
    return re.fullmatch(escaped, name.replace("\\", "/"), re.DOTALL) is not None


@given(FEW, FEW)
def test_a_pattern_covers_what_it_covers_in_opencode(pattern: str, name: str) -> None:
    assert matches_wildcard(pattern, name) == opencode(pattern, name)


@given(st.text(max_size=30))
def test_a_name_without_wildcards_covers_itself_and_a_star_covers_everything(name: str) -> None:
    assert matches_wildcard("*", name)
    assert matches_wildcard(name, name)
    assert matches_wildcard(f"*{name}*", f"x{name}y")


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("github__*", "github__create_issue", True),
        ("github__*", "gitlab__create_issue", False),
        ("*_delete_*", "files_delete_all", True),
        ("read_fil?", "read_file", True),
        ("read_fil?", "read_fil", False),
        ("read", "read_file", False),
        ("READ", "read", False),
        ("a.c", "abc", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_what_patterns_mean(pattern: str, name: str, covered: bool) -> None:
    assert matches_wildcard(pattern, name) is covered


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 200 + "b", "a" * 20_000),
        ("*?" * 200 + "b", "a" * 20_000),
        ("*a?" * 100 + "*b", "a" * 20_000),
        ("a*" * 2_000, "a" * 1_999),
    ],
)
def test_no_pattern_takes_long(pattern: str, name: str) -> None:
    began = time.process_time()
    assert not matches_wildcard(pattern, name)
    assert time.process_time() - began < 1.0
