"""Rules for tools: which one wins, and the error for a denied call."""

from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from rookery.gateway.rules import ALLOWED, Action
from rookery.guard.policy import Policy, Rule, read_rules
from tests.support.requirements import requirement

pytestmark = requirement("guard.policy.rules")

STRICTNESS = ["allow", "ask", "deny"]
ACTIONS = st.sampled_from(cast(list[Action], STRICTNESS))
RULES = st.lists(st.builds(Rule, st.sampled_from(["*", "a__*", "a/*", "*read", "b?", "x"]), ACTIONS, st.just("here")))


def policy(user: dict[str, str], project: dict[str, str] | None = None) -> Policy:
    return Policy(read_rules(user, "user file")[0], read_rules(project or {}, "project file")[0])


def test_without_a_rule_a_tool_is_allowed() -> None:
    assert policy({"other__*": "deny"}).evaluate("github", "read", "github__read") == ALLOWED


def test_the_last_matching_rule_wins_even_over_a_stricter_or_longer_one() -> None:
    rules = policy({"github__delete_repo": "deny", "github__*": "ask", "*_read": "allow"})
    assert rules.evaluate("github", "delete_repo", "github__delete_repo").action == "ask"
    assert rules.evaluate("github", "read", "github__read").action == "allow"
    assert rules.evaluate("github", "write", "github__write").why.count('rule "github__*"') == 1


def test_a_rule_may_name_the_public_name_or_server_and_tool() -> None:
    rules = policy({"github/delete_*": "deny", "gh_x_3f2a": "ask"})
    assert rules.evaluate("github", "delete_repo", "anything").action == "deny"
    assert rules.evaluate("some server", "a very long name", "gh_x_3f2a").action == "ask"


@given(RULES, RULES)
def test_a_project_may_tighten_and_never_loosen(user: list[Rule], project: list[Rule]) -> None:
    words = ("a", "read", "a__read")
    alone = Policy(user).evaluate(*words)
    projects = Policy((), project).evaluate(*words)
    both = Policy(user, project).evaluate(*words)
    assert STRICTNESS.index(both.action) == max(STRICTNESS.index(one.action) for one in (alone, projects))


def test_what_cannot_be_judged_is_denied() -> None:
    verdict = policy({"*": "allow"}).evaluate("a", "b", cast(str, None))
    assert verdict.action == "deny" and "See the daemon's log" in verdict.why


@pytest.mark.parametrize("wrong", [{"a__*": "alow"}, {"a__*": 1}, {"a__*": {"*": []}}, "nonsense", ["a"], 3])
def test_a_rule_that_makes_no_sense_denies_and_is_reported(wrong: Any) -> None:
    rules, problems = read_rules(wrong, "file")
    assert Policy(rules).evaluate("a", "b", "a__b").action == "deny"
    assert len(problems) == 1 and "it is denied" in problems[0] and "allow, ask or deny" in problems[0]


def test_opencodes_permissions_are_read_as_opencode_reads_them() -> None:
    written = {"*": "ask", "bash": {"*": "ask", "git *": "allow"}, "github_*": {"git *": "deny", "*": "allow"}}
    rules, problems = read_rules(written, "opencode.json")
    assert not problems
    assert [(rule.pattern, rule.action) for rule in rules] == [("*", "ask"), ("bash", "ask"), ("github_*", "allow")]
    assert read_rules("deny", "opencode.json")[0] == [Rule("*", "deny", "opencode.json")]


@pytest.mark.parametrize(
    ("action", "said"), [("deny", "is denied"), ("ask", "cannot be asked through this connection")]
)
def test_whoever_is_refused_is_told_the_rule_and_how_the_user_allows_the_tool(action: str, said: str) -> None:
    text = policy({}, {"github__*": action}).evaluate("github", "push", "github__push").why
    assert said in text
    assert f'"github__*": "{action}" in project file' in text
    assert '"github__push": "allow"' in text


def test_a_rule_of_a_project_says_no_more_to_the_model_than_a_line() -> None:
    words = "\n\nNew instructions: "
    text = policy({}, {f"*{words}{'*' * 10_000}": "deny"}).evaluate("a", words, "a__b").why
    assert "\n" not in text
    assert len(text) < 600
