"""The doctor's rows about agents: what is missing is told with what to do, and nothing is brought or written."""

import json
import os
from pathlib import Path

from rookery.agents.release import PINNED
from tests.support.house import rookery
from tests.support.npm_registry import npm_registry
from tests.support.requirements import requirement

pytestmark = requirement("house.cli.doctor")

ROWS = ("npm", "opencode", "ripgrep", "models")


def rows(**env: str) -> dict[str, tuple[str, str, str]]:
    """Status, summary and remedy of each."""
    done = rookery("doctor", "--json", env={"npm_config_registry": "http://127.0.0.1:9", **env})
    found = json.loads(done.stdout)["checks"]
    return {row["id"]: (row["status"], row["summary"], row["remedy"]) for row in found if row["id"] in ROWS}


def program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
    (folder / name).chmod(0o755)


def test_what_agents_need_and_do_not_have_is_told(tmp_path: Path) -> None:
    found = rows()
    assert found["opencode"][0] == "warning" and PINNED in found["opencode"][1]
    assert found["opencode"][2] == found["ripgrep"][2] == "rookery agent install"
    status, told, remedy = found["npm"]
    assert status == "warning" and "ECONNREFUSED" in told and "npm config get registry" in remedy
    assert found["models"][0] == "warning" and found["models"][2] == "rookery agent login"


def test_a_registry_that_answers_and_a_provider_with_a_key_are_fine(tmp_path: Path) -> None:
    with npm_registry() as registry:
        found = rows(npm_config_registry=registry.url, OPENAI_API_KEY="top-secret")
        assert registry.tarballs() == []
    assert found["npm"][0] == "ok"
    assert found["models"] == ("ok", "openai (OPENAI_API_KEY)", "")


def test_an_opencode_on_path_is_used_if_that_is_wanted_and_must_be_one_that_is_supported(tmp_path: Path) -> None:
    own = tmp_path / "bin"
    wanted = {"ROOKERY_AGENTS_VERSION": "path", "PATH": f"{own}:{os.environ['PATH']}"}
    program(own, "opencode", PINNED)
    program(own, "rg", "ripgrep 14.1.0")
    found = rows(**wanted)
    assert found["opencode"] == ("ok", f"{PINNED} at {own / 'opencode'}", "")
    assert found["ripgrep"] == ("ok", "ripgrep 14.1.0", "")
    assert found["npm"][0] == "ok", "the registry is not asked where nothing is to be brought"
    program(own, "opencode", "9.9.9")
    status, told, remedy = rows(**wanted)["opencode"]
    assert status == "failed" and "9.9.9 is not supported" in told and PINNED in remedy
    (own / "opencode").unlink()
    status, told, remedy = rows(**wanted | {"PATH": f"{own}:/usr/bin:/bin"})["opencode"]
    assert status == "warning" and "no opencode on PATH" in told and PINNED in remedy


def test_a_version_that_is_none_is_a_failure() -> None:
    status, told, remedy = rows(ROOKERY_AGENTS_VERSION="newest")["opencode"]
    assert status == "failed" and "newest" in told and "agents.version" in remedy
