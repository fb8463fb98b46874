"""Load plugins: installed packages that name one, and the text of an approved file."""

import asyncio
import importlib.metadata
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from types import ModuleType
from typing import Any

from rookery.plugins.api import Plugin
from rookery.plugins.records import PluginShown
from rookery.plugins.registry import PluginOrigin
from rookery.plugins.runner import describe_error
from rookery.system.errors import RookeryError
from rookery.system.threads import SerialThread

ENTRY_POINT_GROUP = "rookery.plugins"
LOAD_SECONDS = 30.0


@dataclass(frozen=True)
class PluginCandidate:
    """A plugin that can be loaded: `load` runs its code, in any thread."""

    name: str
    origin: PluginOrigin
    load: Callable[[], Any]


async def load_plugin(candidate: PluginCandidate, seconds: float = LOAD_SECONDS) -> Plugin:
    """Run the code of a plugin in a thread of its own; raise RookeryError `plugin-failed` if it fails."""
    thread = SerialThread(f"plugin {candidate.name}")
    try:
        async with asyncio.timeout(seconds):
            plugin = await thread.run(candidate.load)
    except TimeoutError:
        raise _load_error(candidate, f"loading it took longer than {seconds:g} s") from None
    except RookeryError as error:
        raise _load_error(candidate, "; ".join(filter(None, (error.message, *error.details)))) from error
    except Exception as error:
        raise _load_error(candidate, describe_error(error)) from error
    finally:
        thread.close()
    if not isinstance(plugin, Plugin):
        raise _load_error(candidate, "it has no `plugin` that is a rookery.plugins.Plugin")
    return plugin


def find_installed() -> Iterator[PluginCandidate]:
    """Yield the plugins of installed packages, by the entry point group `rookery.plugins`, without running them."""
    for entry in sorted(
        importlib.metadata.entry_points(group=ENTRY_POINT_GROUP),
        key=lambda entry_point: (entry_point.name, entry_point.value),
    ):
        dist = entry.dist
        text = f"package {dist.name} {dist.version}" if dist is not None else f"package {entry.module}"
        yield PluginCandidate(
            entry.name, PluginOrigin(text, version=dist.version if dist is not None else None), entry.load
        )


def from_text(name: str, text: str, origin: PluginOrigin) -> PluginCandidate:
    """Return the plugin of a file, from the approved text: the file itself is not read again."""
    return PluginCandidate(name, origin, lambda: _run(text, origin).__dict__.get("plugin"))


def describe_unloaded(candidate: PluginCandidate, error: RookeryError, at: float) -> PluginShown:
    """Describe a plugin that could not be loaded; `at` is in milliseconds."""
    origin = candidate.origin
    return PluginShown(
        name=candidate.name,
        kind="rookery",
        origin=origin.text,
        status="failed",
        version=origin.version,
        project=origin.project,
        error=error.message,
        error_at=at,
        failures=1,
    )


def _run(text: str, origin: PluginOrigin) -> ModuleType:
    # A declaration of another encoding has no effect in a text: the code that runs is the text that a person has read.
    code = compile(text, origin.text, "exec", dont_inherit=True)
    module = ModuleType(f"rookery_plugin_{sha256(origin.text.encode()).hexdigest()[:16]}")
    module.__file__ = origin.text
    # Dataclasses look up their module, and tracebacks look up its lines.
    sys.modules[module.__name__] = module
    linecache.cache[origin.text] = (len(text), None, text.splitlines(keepends=True), origin.text)
    try:
        exec(code, module.__dict__)  # noqa: S102 - it is what a plugin is for
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _load_error(candidate: PluginCandidate, why: str) -> RookeryError:
    return RookeryError("plugin-failed", f"plugin {candidate.name} could not be loaded: {why}", "fix it, or remove it")
