"""Brings plugins in: installed packages that name one, and the text of a file that was approved."""

import asyncio
import importlib.metadata
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from types import ModuleType
from typing import Any

from rookery.plugins.containment import in_words
from rookery.plugins.plugin import Plugin
from rookery.plugins.records import PluginShown
from rookery.plugins.registry import Origin
from rookery.system.aside import Aside
from rookery.system.errors import RookeryError

GROUP = "rookery.plugins"
SECONDS = 30.0


@dataclass(frozen=True)
class Found:
    """A plugin that may be loaded: `load` runs its code, in whichever thread."""

    name: str
    origin: Origin
    load: Callable[[], Any]


async def loaded(found: Found, seconds: float = SECONDS) -> Plugin:
    """Run the code of a plugin, apart from everything else; raises RookeryError `plugin-failed` with why it failed."""
    aside = Aside(f"plugin {found.name}")
    try:
        async with asyncio.timeout(seconds):
            made = await aside.run(found.load)
    except TimeoutError:
        raise _failed(found, f"loading it took longer than {seconds:g} s") from None
    except RookeryError as error:
        raise _failed(found, "; ".join(filter(None, (error.message, *error.details)))) from error
    except Exception as error:
        raise _failed(found, in_words(error)) from error
    finally:
        aside.close()
    if not isinstance(made, Plugin):
        raise _failed(found, "it has no `plugin` that is a rookery.plugins.Plugin")
    return made


def installed() -> Iterator[Found]:
    """What the packages of this environment have in the entry point group `rookery.plugins`; runs nothing of them."""
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        dist = entry.dist
        text = f"package {dist.name} {dist.version}" if dist is not None else f"package {entry.module}"
        yield Found(entry.name, Origin(text, version=dist.version if dist is not None else None), entry.load)


def from_text(name: str, text: str, origin: Origin) -> Found:
    """A file's plugin, from the text that was approved: the file itself is not read again."""
    return Found(name, origin, lambda: _run(text, origin).__dict__.get("plugin"))


def not_loaded(found: Found, error: RookeryError, at: float) -> PluginShown:
    """What is told of one that could not be; `at` is in milliseconds."""
    origin = found.origin
    return PluginShown(
        name=found.name,
        kind="rookery",
        origin=origin.text,
        status="failed",
        version=origin.version,
        project=origin.project,
        error=error.message,
        error_at=at,
        failures=1,
    )


def _run(text: str, origin: Origin) -> ModuleType:
    # Of a text, a line that names another encoding means nothing: what runs is what a person has read.
    code = compile(text, origin.text, "exec", dont_inherit=True)
    module = ModuleType(f"rookery_plugin_{sha256(origin.text.encode()).hexdigest()[:16]}")
    module.__file__ = origin.text
    # Dataclasses and the like look their module up; tracebacks look up its lines.
    sys.modules[module.__name__] = module
    linecache.cache[origin.text] = (len(text), None, text.splitlines(keepends=True), origin.text)
    try:
        exec(code, module.__dict__)  # noqa: S102 - it is what a plugin is for
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _failed(found: Found, why: str) -> RookeryError:
    return RookeryError("plugin-failed", f"plugin {found.name} could not be loaded: {why}", "mend it, or take it away")
