"""Which parts of a definition its hashes cover, and which are never shown."""

from typing import Any

import pytest

from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.dialects import define_server


def define(**entry: Any) -> Definition:
    return define_server("it", {"command": "run", "args": ["--deny", "A", "--allow", "B"]} | entry, "test")


@pytest.mark.parametrize(
    "change",
    [
        {"command": "other"},
        {"args": ["--deny", "B", "--allow", "A"]},
        {"env": {"A": "b"}},
        {"env": {"A": "c"}},
        {"cwd": "sub"},
        {"inherit": True},
        {"framing": "content-length"},
        {"scope": "app"},
        {"timeout": 1},
    ],
    ids=str,
)
def test_c10_whatever_decides_what_runs_changes_both_hashes(change: dict[str, Any]) -> None:
    plain, changed = define(), define(**change)
    assert plain.digest != changed.digest
    assert plain.written_digest != changed.written_digest


@pytest.mark.parametrize("change", [{"url": "http://b"}, {"headers": {"A": "b"}}, {"oauth": False}, {"type": "sse"}])
def test_c10_so_it_does_for_a_remote_server(change: dict[str, Any]) -> None:
    plain, changed = (define_server("it", {"url": "http://a"} | one, "test") for one in ({}, change))
    assert plain.digest != changed.digest
    assert plain.written_digest != changed.written_digest


def test_c10_another_value_of_a_variable_is_another_definition() -> None:
    assert define(env={"A": "b"}).digest != define(env={"A": "c"}).digest


def test_the_order_of_names_does_not_count() -> None:
    one, other = define(env={"A": "1", "B": "2"}), define(env={"B": "2", "A": "1"})
    assert (one.digest, one.written_digest) == (other.digest, other.written_digest)


def test_what_only_filters_needs_no_new_process_but_a_new_look() -> None:
    for change in ({"enabled": False}, {"tools": {"a": False}}):
        assert define(**change).digest == define().digest
        assert define(**change).written_digest != define().written_digest


def test_servers_with_different_names_share_nothing() -> None:
    one, other = (define_server(name, {"command": "run"}, "test") for name in ("a", "b"))
    assert one.digest != other.digest


def test_c18_neither_repr_nor_str_shows_what_may_be_a_secret() -> None:
    local = define(env={"KEY": "hush"}, args=["--key=hush"])
    remote = define_server("it", {"url": "http://a/?k=hush", "headers": {"A": "hush"}}, "test")
    for shown in (repr(local), str(local), repr(remote), f"{remote}", repr([local, remote])):
        assert "hush" not in shown
        assert "it" in shown
