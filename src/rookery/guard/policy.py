"""Which tools may be called: allow, ask or deny by wildcards, of which the last that matches wins."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rookery.gateway.rules import ALLOWED, Action, Verdict
from rookery.gateway.wildcards import matches

logger = logging.getLogger("rookery.guard")

_STRICTNESS: Mapping[str, int] = {"allow": 0, "ask": 1, "deny": 2}
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Rule:
    pattern: str
    action: Action
    source: str


# What cannot be judged is not run.
_FAILED = "a rule that could not be judged denies it. The daemon's log tells more."


class Policy:
    """The rules of the user and those of a project. The stricter of the two counts: a project may only tighten."""

    def __init__(self, user: Sequence[Rule] = (), project: Sequence[Rule] = ()) -> None:
        self._layers = (tuple(user), tuple(project))

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        """`public` is the tool's name at the gateway's own face, also where a view shows it without its server."""
        try:
            names = (public, f"{server}/{tool}")
            found = [rule for rules in self._layers if (rule := _last(rules, names)) is not None]
            strictest = max(found, key=lambda rule: _STRICTNESS[rule.action], default=None)
            if strictest is None or strictest.action == "allow":
                return ALLOWED
            return Verdict(strictest.action, _why(strictest, public))
        except Exception:
            logger.exception("cannot judge a tool of %s; it is denied", server)
            return Verdict("deny", f"The tool {public} was not run: {_FAILED}")


def _last(rules: Sequence[Rule], names: Sequence[str]) -> Rule | None:
    return next((rule for rule in reversed(rules) if any(matches(rule.pattern, name) for name in names)), None)


def read_rules(written: object, source: str) -> tuple[list[Rule], list[str]]:
    """The rules of a settings table or of OpenCode's `permission`, in their order, and what is wrong with them.

    What makes no sense denies: whoever wrote it wanted to hold something back.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    for pattern, action in _entries(written):
        if action not in _STRICTNESS:
            problems.append(f"{pattern!r} cannot be {action!r}; it is denied (use allow, ask or deny)")
        rules.append(Rule(pattern, cast(Action, action if action in _STRICTNESS else "deny"), source))
    return rules, problems


def _entries(written: object) -> Iterator[tuple[str, str]]:
    if not isinstance(written, Mapping):
        yield "*", str(written)
        return
    for pattern, action in cast(Mapping[Any, Any], written).items():
        if not isinstance(action, Mapping):
            yield str(pattern), str(action)
            continue
        # OpenCode tells some tools apart by what they are given; of a server's tool it only asks about "*".
        for given, inner in cast(Mapping[Any, Any], action).items():
            if matches(str(given), "*"):
                yield str(pattern), str(inner)


def _why(rule: Rule, public: str) -> str:
    """What the model is told of a tool that was not run, and how its user can allow it."""
    asks = rule.action == "ask"
    why = "needs the user's consent, and the user cannot be asked from here" if asks else "is denied"
    # A project may have written the rule: it stays one line, and short.
    told = f'{json.dumps(rule.pattern[:_LONGEST_SHOWN], ensure_ascii=False)}: "{rule.action}"'
    return (
        f"The tool {public} was not run: it {why}, by the rule {told} in {rule.source}. "
        "Do not try again or work around it. The user can allow it with a later rule there, "
        f'under "permission": "{public}": "allow".'
    )
