"""Sources of context side by side: none waits for another, and one that is slow or fails is left out and named."""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rookery.files.context.rendering import Receipt
from rookery.files.context.section import Section
from rookery.system.clean import clean
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.context")
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Gatherer:
    """The keys of its sections are its name, or begin with it and a slash."""

    name: str
    gather: Callable[[], Awaitable[Sequence[Section]]]
    seconds: float = 5.0

    def owns(self, key: str) -> bool:
        return key.partition("/")[0] == self.name


async def gather_all(tasks: TaskSet, gatherers: Sequence[Gatherer]) -> tuple[list[Section], list[Receipt]]:
    """All sections, without control characters, and a receipt for each gatherer that gave none."""
    found = await asyncio.gather(*(_within(tasks, gatherer) for gatherer in gatherers))
    sections = [_cleaned(section) for one in found if not isinstance(one, Receipt) for section in one]
    return sections, [one for one in found if isinstance(one, Receipt)]


async def _within(tasks: TaskSet, gatherer: Gatherer) -> Sequence[Section] | Receipt:
    task = tasks.start(_safely(gatherer), gatherer.name)
    try:
        done, _ = await asyncio.wait({task}, timeout=gatherer.seconds)
        if done:
            return task.result()
        return Receipt(gatherer.name, "skipped", reason=f"left out: it took longer than {gatherer.seconds:g} s")
    finally:
        # Its end is not waited for: it may be as slow as the rest of it.
        task.cancel()


async def _safely(gatherer: Gatherer) -> Sequence[Section] | Receipt:
    try:
        return await gatherer.gather()
    except RookeryError as error:
        return Receipt(gatherer.name, "skipped", reason=f"left out: {_reason(error.message)}")
    except Exception as error:
        logger.exception("gathering context from %s failed", gatherer.name)
        return Receipt(gatherer.name, "skipped", reason=f"left out: it failed with {type(error).__name__}")


def _reason(message: str) -> str:
    return " ".join(clean(message).split())[:_LONGEST_REASON]


def _cleaned(section: Section) -> Section:
    key, title = (" ".join(clean(word).split("\n")) for word in (section.key, section.title))
    return dataclasses.replace(section, key=key, title=title, text=clean(section.text))
