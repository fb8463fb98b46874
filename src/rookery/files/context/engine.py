"""What `get_project_context` answers for one workspace."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.files.context.budget import Filled, fill
from rookery.files.context.gathering import Gatherer, gather_all
from rookery.files.context.rendering import Receipt, closing, opening, shown
from rookery.files.context.section import Section
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet

BUDGET = 20_000
LEAST, MOST = 1_000, 200_000
# How many answers are remembered, to tell what has changed since.
_REMEMBERED = 128


@dataclass(frozen=True)
class Answer:
    """`since` is the token by which the next call gets only what has changed."""

    text: str
    since: str
    receipts: list[Receipt]


class Context:
    def __init__(self, gatherers: Sequence[Gatherer]) -> None:
        self._gatherers = tuple(gatherers)
        self._tasks = TaskSet("context")
        self._known: dict[str, dict[str, str]] = {}

    async def get(self, *, budget: int = BUDGET, since: str | None = None) -> Answer:
        """A token that is not known (any more) gives everything, and says so."""
        if not LEAST <= budget <= MOST:
            message = f"a budget of {budget} tokens is not possible"
            raise RookeryError("invalid-input", message, f"give one from {LEAST} to {MOST}")
        sections, others = await gather_all(self._tasks, self._gatherers)
        known = self._known.get(since, {}) if since else {}
        skipped = {receipt.key for receipt in others}
        there = {section.key for section in sections}
        kept = {key: digest for key, digest in known.items() if key.partition("/")[0] in skipped}
        others += [Receipt(key, "gone", reason="gone since") for key in known if key not in there and key not in kept]
        if since and not known:
            reason = "this token is not known here any more, so that everything is told"
            others.append(Receipt("since", "skipped", reason=reason))
        filled = fill(sections, budget, known, others)
        token = self._remember(kept | _given(filled, known))
        mark = new_id()[:8]
        text = "".join(shown(section, part, mark) for section, part in filled.placed)
        return Answer(opening(mark) + text + closing(filled.receipts, token), token, filled.receipts)

    async def keys(self) -> list[str]:
        """The sections that there are now."""
        sections, _ = await gather_all(self._tasks, self._gatherers)
        return sorted(section.key for section in sections)

    async def whole(self, key: str) -> Section:
        """One section in full, for its resource link."""
        sections, others = await gather_all(self._tasks, [one for one in self._gatherers if one.owns(key)])
        for section in sections:
            if section.key == key:
                return section
        why = f": {others[0].reason}" if others else ""
        raise RookeryError(
            "resource-not-found", f"there is no section {key!r} in the context{why}", "get_project_context names all"
        )

    async def close(self) -> None:
        """End gatherers that were too slow and may still run."""
        await self._tasks.close()

    def _remember(self, digests: Mapping[str, str]) -> str:
        token = "c-" + hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()[:12]
        self._known.pop(token, None)
        self._known[token] = dict(digests)
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return token


def _given(filled: Filled, known: Mapping[str, str]) -> dict[str, str]:
    """The digest of each section that the client has by now; one that had no room is told of again."""
    unchanged = [receipt.key for receipt in filled.receipts if receipt.status == "unchanged"]
    placed = {section.key: section.digest for section, _ in filled.placed}
    return placed | {key: known[key] for key in unchanged}
