"""A home for the real OpenCode that contains nothing of the user and needs no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.testing.model import opencode_config

OPENCODE_VERSION = "1.18.33"

OFFLINE = {
    f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
}
_PLUGIN = {"@opencode-ai/plugin": OPENCODE_VERSION}


@dataclass(frozen=True)
class OpenCodeHome:
    """HOME and the XDG folders of one OpenCode. Two concurrent first starts on one home disturb each other."""

    folder: Path

    @staticmethod
    def make(folder: Path) -> "OpenCodeHome":
        made = OpenCodeHome(folder)
        fetch_no_plugin_package(made.config)
        return made

    @property
    def config(self) -> Path:
        """Return the folder of the user's own OpenCode config."""
        return self.folder / "config" / "opencode"

    def environment(self, config: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Return all variables that OpenCode needs except PATH; `config` is passed inline."""
        folders = {f"XDG_{kind.upper()}_HOME": str(self.folder / kind) for kind in ("config", "data", "state", "cache")}
        inline = {"OPENCODE_CONFIG_CONTENT": json.dumps(config)} if config is not None else {}
        return {"HOME": str(self.folder), "LANG": "C.UTF-8", **folders, **OFFLINE, **inline}


def fetch_no_plugin_package(folder: Path) -> None:
    """Make a config folder, such as `.opencode` of a repository, look as if OpenCode had already run npm in it."""
    (folder / "node_modules").mkdir(parents=True, exist_ok=True)
    for name, text in no_plugin_package().items():
        (folder / name).write_text(text)


def no_plugin_package() -> dict[str, str]:
    """Return the files of such a folder; it also needs an empty `node_modules`."""
    lock = {"name": "x", "lockfileVersion": 3, "packages": {"": {"dependencies": _PLUGIN}}}
    return {"package.json": json.dumps({"dependencies": _PLUGIN}), "package-lock.json": json.dumps(lock)}


def scripted_config(model_url: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a config with which OpenCode uses the model at `model_url` (which ends in /v1) and no other.

    Snapshots are off, because they cost more than the rest of a turn.
    """
    return opencode_config(model_url, key) | {"autoupdate": False, "share": "disabled", "snapshot": False} | more
