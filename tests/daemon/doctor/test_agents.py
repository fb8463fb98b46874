"""The doctor's checks of agents: each problem has a remedy, and nothing is installed or written."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from rookery.agents.opencode.release import PINNED_VERSION
from tests.support.daemon.process import ROOKERY, SECONDS, rookery
from tests.support.npm.registry import npm_registry
from tests.support.opencode.process import installed
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk

pytestmark = requirement("house.cli.doctor")

ROWS = ("npm", "opencode", "ripgrep", "models")


# Nobody listens there.
NO_REGISTRY = {"npm_config_registry": "http://127.0.0.1:9"}


def rows(**env: str) -> dict[str, tuple[str, str, str]]:
    """Status, summary and remedy of each."""
    return parse(rookery("doctor", "--json", env=NO_REGISTRY | env).stdout)


def on_read_only(disk: SmallDisk, **env: str) -> dict[str, tuple[str, str, str]]:
    """The rows with the real OpenCode on PATH, where `disk` is read-only."""
    mount = ("sh", "-c", 'mount -o remount,ro "$0" && exec "$@"', str(disk.folder))
    done = subprocess.run(
        [*disk.words, *mount, ROOKERY, "doctor", "--json"],
        env=os.environ | NO_REGISTRY | {"PATH": installed().search_path, "ROOKERY_AGENTS_VERSION": "path"} | env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return parse(done.stdout)


def parse(shown: str) -> dict[str, tuple[str, str, str]]:
    found = json.loads(shown)["checks"]
    return {row["id"]: (row["status"], row["summary"], row["remedy"]) for row in found if row["id"] in ROWS}


def program(folder: Path, name: str, says: str, then: str = "exit 0") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n{then}\n")
    (folder / name).chmod(0o755)


def test_what_agents_need_and_do_not_have_is_told(tmp_path: Path) -> None:
    found = rows()
    assert found["opencode"][0] == "warning" and PINNED_VERSION in found["opencode"][1]
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


def test_opencode_on_path_is_used_on_request_and_must_be_a_supported_version(tmp_path: Path) -> None:
    own = tmp_path / "bin"
    wanted = {"ROOKERY_AGENTS_VERSION": "path", "PATH": f"{own}:{os.environ['PATH']}"}
    program(own, "opencode", PINNED_VERSION)
    program(own, "rg", "ripgrep 14.1.0")
    found = rows(**wanted)
    assert found["opencode"] == ("ok", f"{PINNED_VERSION} at {own / 'opencode'}", "")
    assert found["ripgrep"] == ("ok", "ripgrep 14.1.0", "")
    assert found["npm"][0] == "ok", "the registry is not asked where nothing is to be brought"
    program(own, "opencode", "9.9.9")
    status, told, remedy = rows(**wanted)["opencode"]
    assert status == "failed" and "9.9.9 is not supported" in told and PINNED_VERSION in remedy
    (own / "opencode").unlink()
    status, told, remedy = rows(**wanted | {"PATH": f"{own}:/usr/bin:/bin"})["opencode"]
    assert status == "warning" and "no opencode on PATH" in told and PINNED_VERSION in remedy


EROFS = "\"EROFS: read-only file system, mkdir '/srv/home-1.18.33/.local'\""
READ_ONLY = "does not run here: the file system is read-only: /srv/home-1.18.33/.local"


@pytest.mark.parametrize(
    ("says", "then", "why"),
    [
        (EROFS, "exit 0", READ_ONLY),
        (EROFS, "exit 1", READ_ONLY),
        (f"{EROFS} >&2", "exit 1", READ_ONLY),
        (f"{EROFS} >&2", "exit 0", READ_ONLY),
        ("Hello 1.18.33", "exit 0", "does not run here: it prints 'Hello 1.18.33' instead of its version"),
        (PINNED_VERSION, "exit 3", "does not run here: it ended with 3"),
        ("-n", "exit 0", "does not run here: it does not print its version"),
        ("-n", "exit 3", "does not run here: it ended with 3"),
    ],
)
def test_what_an_opencode_says_is_a_version_or_a_failure_with_its_cause(
    tmp_path: Path, says: str, then: str, why: str
) -> None:
    program(tmp_path, "opencode", says, then)
    env = {"ROOKERY_AGENTS_VERSION": "path", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    status, told, remedy = rows(**env)["opencode"]
    assert (status, told) == ("failed", f"{tmp_path / 'opencode'} {why}")
    assert remedy


def test_a_home_that_is_read_only_is_no_part_of_opencodes_version(small_disk: SmallDisk) -> None:
    found = on_read_only(small_disk, HOME=str(small_disk.folder))
    assert found["opencode"] == ("ok", f"{PINNED_VERSION} at {installed().opencode}", "")


def test_temporary_files_that_cannot_be_made_are_named_with_their_folder(small_disk: SmallDisk) -> None:
    status, told, remedy = on_read_only(small_disk, TMPDIR=str(small_disk.folder))["opencode"]
    assert status == "failed" and f"the file system is read-only: {small_disk.folder}" in told and remedy


def test_a_registry_is_not_asked_where_temporary_files_cannot_be_made(small_disk: SmallDisk) -> None:
    env = {"TMPDIR": str(small_disk.folder), "ROOKERY_AGENTS_VERSION": PINNED_VERSION}
    status, told, remedy = on_read_only(small_disk, **env)["npm"]
    assert status == "warning" and f"the file system is read-only: {small_disk.folder}" in told and remedy


def test_a_version_that_is_none_is_a_failure() -> None:
    status, told, remedy = rows(ROOKERY_AGENTS_VERSION="newest")["opencode"]
    assert status == "failed" and "newest" in told and "agents.version" in remedy
