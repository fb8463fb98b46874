"""Gather and render the context of one workspace, for `get_project_context`.

Gatherers run concurrently. One that is slow or fails is left out, and the result names it.
"""

import asyncio
import dataclasses
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from rookery.files.context.section import (
    FilledBudget,
    Receipt,
    Section,
    fill_budget,
    render_closing,
    render_opening,
    render_section,
)
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet
from rookery.system.text import remove_invisible

logger = logging.getLogger("rookery.context")
_MAX_REASON = 300

DEFAULT_BUDGET = 20_000
MIN_BUDGET = 1_000
MAX_BUDGET = 200_000
# How many results are remembered, to find what has changed since.
_MAX_REMEMBERED = 128


@dataclass(frozen=True)
class Gatherer:
    """A source of sections. Their keys are its name, or begin with its name and a slash."""

    name: str
    gather: Callable[[], Awaitable[Sequence[Section]]]
    seconds: float = 5.0

    def owns(self, key: str) -> bool:
        """Return whether a section with this key comes from this gatherer."""
        return key.partition("/")[0] == self.name


async def gather_sections(tasks: TaskSet, gatherers: Sequence[Gatherer]) -> tuple[list[Section], list[Receipt]]:
    """Return all sections, without control characters, and a receipt for each gatherer that returned none."""
    results = await asyncio.gather(*(_gather_in_time(tasks, gatherer) for gatherer in gatherers))
    sections = [_clean_section(section) for result in results if not isinstance(result, Receipt) for section in result]
    return sections, [result for result in results if isinstance(result, Receipt)]


async def _gather_in_time(tasks: TaskSet, gatherer: Gatherer) -> Sequence[Section] | Receipt:
    task = tasks.start(_gather_safely(gatherer), gatherer.name)
    try:
        done, _ = await asyncio.wait({task}, timeout=gatherer.seconds)
        if done:
            return task.result()
        return Receipt(gatherer.name, "skipped", reason=f"left out: it took longer than {gatherer.seconds:g} s")
    finally:
        # Do not wait for its end, which may be slow too.
        task.cancel()


async def _gather_safely(gatherer: Gatherer) -> Sequence[Section] | Receipt:
    try:
        return await gatherer.gather()
    except RookeryError as error:
        return Receipt(gatherer.name, "skipped", reason=f"left out: {_format_reason(error.message)}")
    except Exception as error:
        logger.exception("gathering context from %s failed", gatherer.name)
        return Receipt(gatherer.name, "skipped", reason=f"left out: it failed with {type(error).__name__}")


def _format_reason(message: str) -> str:
    return " ".join(remove_invisible(message).split())[:_MAX_REASON]


def _clean_section(section: Section) -> Section:
    key, title = (" ".join(remove_invisible(word).split("\n")) for word in (section.key, section.title))
    return dataclasses.replace(section, key=key, title=title, text=remove_invisible(section.text))


@dataclass(frozen=True)
class ContextResult:
    """The rendered context. `since` is the token with which the next call gets only what has changed."""

    text: str
    since: str
    receipts: list[Receipt]


class ProjectContext:
    """The context of one workspace; remembers which sections clients have received."""

    def __init__(self, gatherers: Sequence[Gatherer]) -> None:
        self._gatherers = tuple(gatherers)
        self._tasks = TaskSet("context")
        self._digests_by_token: dict[str, dict[str, str]] = {}

    async def get(self, *, budget: int = DEFAULT_BUDGET, since: str | None = None) -> ContextResult:
        """Return the sections that changed since the token `since`; all, with a note, if it is unknown or expired."""
        if not MIN_BUDGET <= budget <= MAX_BUDGET:
            message = f"a budget of {budget} tokens is out of range"
            raise RookeryError("invalid-input", message, f"use a budget from {MIN_BUDGET} to {MAX_BUDGET}")
        sections, others = await gather_sections(self._tasks, self._gatherers)
        previous = self._digests_by_token.get(since, {}) if since else {}
        skipped = {receipt.key for receipt in others}
        present = {section.key for section in sections}
        kept = {key: digest for key, digest in previous.items() if key.partition("/")[0] in skipped}
        others += [
            Receipt(key, "gone", reason="removed since then")
            for key in previous
            if key not in present and key not in kept
        ]
        if since and not previous:
            reason = "the token is unknown or expired, so everything is included"
            others.append(Receipt("since", "skipped", reason=reason))
        filled = fill_budget(sections, budget, previous, others)
        token = self._remember(kept | _sent_digests(filled, previous))
        mark = new_id()[:8]
        text = "".join(render_section(section, part, mark) for section, part in filled.placed)
        return ContextResult(
            render_opening(mark) + text + render_closing(filled.receipts, token), token, filled.receipts
        )

    async def keys(self) -> list[str]:
        """Return the keys of the current sections."""
        sections, _ = await gather_sections(self._tasks, self._gatherers)
        return sorted(section.key for section in sections)

    async def get_section(self, key: str) -> Section:
        """Return one section in full, for its resource link."""
        sections, others = await gather_sections(
            self._tasks, [gatherer for gatherer in self._gatherers if gatherer.owns(key)]
        )
        for section in sections:
            if section.key == key:
                return section
        reason = f": {others[0].reason}" if others else ""
        raise RookeryError(
            "resource-not-found",
            f"there is no section {key!r} in the context{reason}",
            "get_project_context lists all sections",
        )

    async def close(self) -> None:
        """Cancel gatherers that were too slow and may still run."""
        await self._tasks.close()

    def _remember(self, digests: Mapping[str, str]) -> str:
        token = "c-" + hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()[:12]
        self._digests_by_token.pop(token, None)
        self._digests_by_token[token] = dict(digests)
        while len(self._digests_by_token) > _MAX_REMEMBERED:
            del self._digests_by_token[next(iter(self._digests_by_token))]
        return token


def _sent_digests(filled: FilledBudget, previous: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each section that the client now has; one that did not fit counts as new again."""
    unchanged = [receipt.key for receipt in filled.receipts if receipt.status == "unchanged"]
    placed = {section.key: section.digest for section, _ in filled.placed}
    return placed | {key: previous[key] for key in unchanged}
