"""`rookery demo`, with the version of OpenCode from the user's settings."""

import os
from pathlib import Path

from rookery.daemon.settings import layers
from rookery.demo.run import DemoOptions, run_demo as run
from rookery.system.fs import paths


def run_demo(*, once: bool, keep: bool, as_json: bool, pictures: Path | None) -> int:
    layered = layers.load_layers(paths.config_folder(), environment=os.environ)
    return run(DemoOptions(layered.values["agents.version"], once, keep, as_json, pictures))
