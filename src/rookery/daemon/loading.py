"""The settings of a daemon: read when it starts, and again while it runs."""

import logging
import os
from typing import Any

from rookery.daemon import layers
from rookery.daemon.known import known_settings
from rookery.daemon.options import Options
from rookery.system import log, places
from rookery.system.bus import Bus

logger = logging.getLogger("rookery.daemon")


def load_settings(options: Options) -> layers.Layered:
    project = layers.checkout_of(options.project) if options.project else None
    return layers.load(places.config_folder(), project=project, environment=os.environ, flags=options.flags)


def load_again(options: Options, layered: layers.Layered, events: Bus) -> dict[str, Any]:
    """Take over into `layered` what can change while running; the rest waits for a restart. Answers which is which."""
    fresh = load_settings(options)
    settings = fresh.settings()
    known = known_settings()
    changed = [key for key, value in fresh.values.items() if value != layered.values[key]]
    applied = [key for key in changed if known[key].live]
    log.set_level(settings.log.level)
    for key in applied:
        layered.values[key] = fresh.values[key]
        layered.sources[key] = fresh.sources[key]
    layered.problems = fresh.problems
    if applied:
        logger.info("settings taken over: %s", ", ".join(applied))
        events.publish("settings.changed", keys=applied)
    return {"applied": applied, "needs_restart": [key for key in changed if key not in applied]}
