"""What decides whether a tool is shown, and whether it may be called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rookery.gateway.switches import Subjects, Switches
from rookery.gateway.wildcards import matches

Action = Literal["allow", "ask", "deny"]

# Wildcards and whether what they match is shown; the last match wins.
Filter = Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Verdict:
    """What the policy says of one tool; `why` is for whoever is refused."""

    action: Action
    why: str = ""


ALLOWED = Verdict("allow")

Judge = Callable[[str, str, str], Verdict]


class Rules(Protocol):
    """The filters, switches and policy of one view. `public` is a tool's name at the gateway's own face."""

    def shows(self, server: str, tool: str, public: str) -> bool: ...

    def verdict(self, server: str, tool: str, public: str) -> Verdict: ...


@dataclass(frozen=True)
class ViewRules:
    """`of_server` filters by a tool's own name, `of_view` by its public one or by `<server>/<tool>`."""

    of_server: Mapping[str, Filter]
    of_view: Filter
    switches: Switches
    subjects: Subjects
    judge: Judge

    def shows(self, server: str, tool: str, public: str) -> bool:
        switched = self.switches.tool(server, tool, self.subjects)
        if switched is not None:
            return switched
        if not _last(self.of_server.get(server, ()), (tool,)):
            return False
        return _last(self.of_view, (public, f"{server}/{tool}"))

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        return self.judge(server, tool, public)


def _last(wanted: Filter, names: Sequence[str]) -> bool:
    return next((shown for pattern, shown in reversed(wanted) if any(matches(pattern, one) for one in names)), True)
