"""Rules for tool calls: allow, ask or deny by wildcard patterns; the last matching rule wins."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rookery.gateway.rules import ALLOWED, Action, Verdict, matches_wildcard

logger = logging.getLogger("rookery.guard")

_STRICTNESS: Mapping[str, int] = {"allow": 0, "ask": 1, "deny": 2}
_MAX_PATTERN_CHARS = 200

# A tool is denied if evaluating its rules fails.
_FAILED = "evaluating its rules failed. See the daemon's log."


@dataclass(frozen=True)
class Rule:
    """One pattern with its action, and the file that it comes from."""

    pattern: str
    action: Action
    source: str


class Policy:
    """The rules of the user and those of a project. The stricter of the two counts: a project may only tighten."""

    def __init__(self, user: Sequence[Rule] = (), project: Sequence[Rule] = ()) -> None:
        self._layers = (tuple(user), tuple(project))

    def evaluate(self, server: str, tool: str, public: str) -> Verdict:
        """Return whether a tool may be called.

        `public` is the tool's name at the gateway, even in a view that lists it without its server.
        """
        try:
            names = (public, f"{server}/{tool}")
            matching = [rule for rules in self._layers if (rule := _find_last_match(rules, names)) is not None]
            strictest = max(matching, key=lambda rule: _STRICTNESS[rule.action], default=None)
            if strictest is None or strictest.action == "allow":
                return ALLOWED
            return Verdict(strictest.action, _explain(strictest, public))
        except Exception:
            logger.exception("cannot evaluate the rules for a tool of %s; it is denied", server)
            return Verdict("deny", f"The tool {public} was not run: {_FAILED}")


def _find_last_match(rules: Sequence[Rule], names: Sequence[str]) -> Rule | None:
    return next((rule for rule in reversed(rules) if any(matches_wildcard(rule.pattern, name) for name in names)), None)


def read_rules(permission: object, source: str) -> tuple[list[Rule], list[str]]:
    """Return the rules of a settings table or of OpenCode's `permission`, in their order, and their errors.

    An invalid rule denies: its author wanted to restrict something.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    for pattern, action in _entries(permission):
        if action not in _STRICTNESS:
            problems.append(f"{pattern!r} cannot be {action!r}; it is denied (use allow, ask or deny)")
        rules.append(Rule(pattern, cast(Action, action if action in _STRICTNESS else "deny"), source))
    return rules, problems


def _entries(permission: object) -> Iterator[tuple[str, str]]:
    if not isinstance(permission, Mapping):
        yield "*", str(permission)
        return
    for pattern, action in cast(Mapping[Any, Any], permission).items():
        if not isinstance(action, Mapping):
            yield str(pattern), str(action)
            continue
        # OpenCode distinguishes some tools by their arguments; for a tool of a server only "*" applies.
        for argument_pattern, inner in cast(Mapping[Any, Any], action).items():
            if matches_wildcard(str(argument_pattern), "*"):
                yield str(pattern), str(inner)


def _explain(rule: Rule, public: str) -> str:
    """Return the message to the model for a tool that was not run, with how the user can allow it."""
    asks = rule.action == "ask"
    why = "needs the user's consent, but the user cannot be asked through this connection" if asks else "is denied"
    # A project may have written the rule: its text is kept on one line, and short.
    rule_text = f'{json.dumps(rule.pattern[:_MAX_PATTERN_CHARS], ensure_ascii=False)}: "{rule.action}"'
    return (
        f"The tool {public} was not run: it {why}, by the rule {rule_text} in {rule.source}. "
        "Do not try again or work around it. The user can allow it with a later rule there, "
        f'under "permission": "{public}": "allow".'
    )
