"""Differences as SARIF."""

from rookery.guard.lock.compare import DRIFT_RULES, Drift
from rookery.guard.lock.file import FactKey, LockedServer, format_lock
from rookery.guard.lock.sarif import make_drift_sarif


def test_a_result_names_its_rule_and_the_line_that_it_is_about() -> None:
    text = format_lock([LockedServer("a", "project", {FactKey("url"): "https://host/"})])
    found = [
        Drift("server-changed", "error", "a", "url", "url: ..."),
        Drift("own-server-missing", "note", "b", "server", "..."),
    ]
    (run,) = make_drift_sarif(found, text, "1.0")["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(DRIFT_RULES)
    lines = [each["locations"][0]["physicalLocation"]["region"]["startLine"] for each in run["results"]]
    assert text.splitlines()[lines[0] - 1] == 'a url "https://host/"' and lines[1] == 1
    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [
        ("server-changed", "error"),
        ("own-server-missing", "note"),
    ]
    assert all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in run["results"])
