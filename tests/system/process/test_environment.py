"""Which variables a child process gets, and what a failure says of those that it lacks."""

import pytest

from rookery.system.process.environment import (
    EnvironmentFilter,
    allowed_environment,
    explain_reduced_environment,
    find_missing_variables,
    inherited_environment,
)

VARIABLES = {
    "DISPLAY": ":0",
    "WAYLAND_DISPLAY": "wayland-0",
    "XAUTHORITY": "/x",
    "https_proxy": "http://proxy",
    "HTTPS_PROXY": "http://proxy",
    "NO_PROXY": "a",
    "LC_ALL": "C",
    "DATABASE_URL": "postgres:",
    "AWS_REGION": "r",
    "AWS_PROFILE": "p",
    "ROOKERY_TOKEN": "rk_secret",
    "ROOKERY_SPAWN": "mark",
}
DEFAULT = {"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "https_proxy", "HTTPS_PROXY", "NO_PROXY", "LC_ALL"}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET_THING", raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("", set[str]()),
        ("DATABASE_URL", {"DATABASE_URL"}),
        (" DATABASE_URL , AWS_* ", {"DATABASE_URL", "AWS_REGION", "AWS_PROFILE"}),
        ("aws_*", set[str]()),
        ("*", {"DATABASE_URL", "AWS_REGION", "AWS_PROFILE"}),
        ("ROOKERY_TOKEN,ROOKERY_*", set[str]()),
    ],
)
def test_c18_a_setting_adds_to_the_default_list_and_never_the_daemons_token(value: str, more: set[str]) -> None:
    selected = EnvironmentFilter.parse("servers.env", value).select({"OWN": "1"})
    assert selected["OWN"] == "1" and selected["PATH"]
    assert selected.keys() & VARIABLES.keys() == DEFAULT | more


def test_c18_the_short_list_has_neither_the_screen_nor_proxies() -> None:
    assert allowed_environment().keys() & VARIABLES.keys() == {"LC_ALL"}
    assert inherited_environment().keys() & VARIABLES.keys() == VARIABLES.keys() - {"ROOKERY_TOKEN", "ROOKERY_SPAWN"}


@pytest.mark.parametrize(
    "output",
    [
        "sh: 1: DATABASE_URL: parameter not set",
        "bash: DATABASE_URL: unbound variable",
        "KeyError: 'DATABASE_URL'",
        "Error: DATABASE_URL environment variable is required",
        "error: environment variable `DATABASE_URL` not present",
        "Missing required environment variable: DATABASE_URL",
        "Please set DATABASE_URL first",
        "panic: $DATABASE_URL!",
        "could not read DATABASE_URL",
    ],
)
def test_a_variable_that_was_withheld_is_named_with_the_setting(output: str) -> None:
    own = EnvironmentFilter("just.env", ("AWS_*",))
    assert own.explain_failure(output, {}) == (
        "its environment was reduced: DATABASE_URL is set where Rookery was started, but not passed on; "
        "to pass it on: rookery config set just.env 'AWS_*,DATABASE_URL'"
    )
    assert own.explain_failure(output, {"DATABASE_URL": "x"}) == ""


@pytest.mark.parametrize(
    "output",
    [
        "sh: 1: UNSET_THING: parameter not set",
        "KeyError: 'UNSET_THING'",
        "UNSET_THING is not defined",
        "You need to provide the UNSET_THING",
        "missing env variable UNSET_THING",
    ],
)
def test_a_variable_that_is_set_nowhere_is_named_too(output: str) -> None:
    found = EnvironmentFilter("servers.env").explain_failure(output, {})
    assert found.startswith("its environment was reduced: UNSET_THING is not set here, nor where Rookery was started;")
    assert found.endswith("name it in the setting servers.env")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "ERROR: EACCES at /usr/DATABASE_URL/x",
        "THE_END of the FILE",
        "DATABASE_URLS and my-DATABASE_URL",
        "ROOKERY_TOKEN is not set",
    ],
)
def test_other_words_in_capitals_are_not_variables(output: str) -> None:
    assert find_missing_variables(output, {}) == ([], [])


def test_the_remedy_for_a_repository_names_the_variable() -> None:
    found = explain_reduced_environment("DATABASE_URL: not set", {}, "add {env:NAME}")
    assert found.endswith("but not passed on; add {env:DATABASE_URL}")
    assert explain_reduced_environment("it failed", {}, "add {env:NAME}") == ""
