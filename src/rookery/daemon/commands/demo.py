"""`rookery demo`, with the OpenCode that the user's settings name."""

import os
from pathlib import Path

from rookery.daemon import layers
from rookery.demo.running import DemoOptions, run_demo as run
from rookery.system import places


def run_demo(*, once: bool, keep: bool, as_json: bool, pictures: Path | None) -> int:
    layered = layers.load(places.config_folder(), environment=os.environ)
    return run(DemoOptions(layered.values["agents.version"], once, keep, as_json, pictures))
