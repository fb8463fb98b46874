"""Responses of a docker engine: which containers belong to a workspace, and which log lines are errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.files.context.docker import build_docker_sections, decode_log
from rookery.files.context.section import Section
from rookery.system.errors import RookeryError
from tests.support.docker import framed
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def container(name: str, folder: Path | None, status: str = "Up 5 minutes", state: str = "running") -> dict[str, Any]:
    labels = {"com.docker.compose.project.working_dir": str(folder)} if folder is not None else None
    return {"Id": name, "Names": [f"/{name}"], "Image": "i", "State": state, "Status": status, "Labels": labels}


async def sections(root: Path, listed: list[dict[str, Any]] | bytes | None, **logs: bytes) -> dict[str, Section]:
    async def ask(path: str) -> bytes | None:
        if path.startswith("/containers/json"):
            return listed if isinstance(listed, bytes | None) else json.dumps(listed).encode()
        log = logs[path.split("/")[2]]
        if log == b"slow":
            raise RookeryError("timeout", "the docker engine did not answer within 3 s")
        return log

    return {one.key: one for one in await build_docker_sections(ask, root)}


@requirement("context.get.aggregate")
async def test_containers_started_in_the_workspace_or_beneath_it_are_its_own(tmp_path: Path) -> None:
    root = tmp_path / "app"
    (root / "deploy").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    every = [
        container("other", tmp_path / "app-two"),
        container("nobody", None),
        container("own", tmp_path / "link"),
        container("inner", root / "deploy"),
    ]
    found = await sections(root, every, own=b"", inner=b"")
    assert [line.split(":")[0] for line in found["docker"].text.splitlines()] == ["own", "inner", "other", "nobody"]
    assert found["docker"].text.count("of this workspace") == 2 and found["docker"].priority == 3
    (alone,) = (await sections(root, every[:2])).values()
    assert alone.priority == 6


async def test_the_containers_of_a_workspace_inside_of_this_one_are_not_its_own(tmp_path: Path) -> None:
    inner = tmp_path / "trees" / "two"
    (inner / "deploy").mkdir(parents=True)
    every = [container("own", tmp_path / "trees"), container("inner", inner), container("deeper", inner / "deploy")]
    asked: list[str] = []

    async def ask(path: str) -> bytes | None:
        asked.append(path)
        return json.dumps(every).encode() if path.startswith("/containers/json") else b"Error: mine"

    found = await build_docker_sections(ask, tmp_path, lambda: [("trees", "two")])
    assert [one.key for one in found] == ["docker", "docker/own"]
    assert found[0].text.count("of this workspace") == 1
    assert not [path for path in asked if "inner" in path or "deeper" in path]


@requirement("context.docker.checkout")
async def test_containers_of_the_main_checkout_are_shared_with_its_worktrees(tmp_path: Path) -> None:
    main, worktree = tmp_path / "app", tmp_path / "worktree"
    nested = main / "trees" / "two"
    for folder in (main / "deploy", worktree, nested / "deploy"):
        folder.mkdir(parents=True)
    (main / ".git").mkdir()
    (nested / ".git").touch()
    every = [
        container("other", tmp_path / "app-two"),
        container("nested", nested / "deploy"),
        container("db", main),
        container("web", main / "deploy"),
        container("own", worktree),
    ]
    asked: list[str] = []

    async def ask(path: str) -> bytes | None:
        asked.append(path)
        return json.dumps(every).encode() if path.startswith("/containers/json") else b"Error: no space"

    found = {section.key: section for section in await build_docker_sections(ask, worktree, tuple, main)}
    assert found.keys() == {"docker", "docker/own", "docker/db", "docker/web"}
    assert found["docker"].text.splitlines() == [
        "own: running, image i, of this workspace",
        "db: running, image i, shared with the main checkout",
        "web: running, image i, shared with the main checkout",
        "other: running, image i",
        "nested: running, image i",
    ]
    assert found["docker/own"].title == "Errors in the log of the container own"
    assert found["docker/db"].title == "Errors in the log of the container db (shared with the main checkout)"
    assert found["docker/db"].text == "Error: no space\n"
    assert not [path for path in asked if "other" in path or "nested" in path]


async def test_lines_that_speak_of_errors_are_told_and_of_an_ill_one_also_the_last(tmp_path: Path) -> None:
    log = framed(*((1, f"line {number}") for number in range(50)), (2, "Error: first"), (1, "well again"))
    every = [
        container("well", tmp_path),
        container("quiet", tmp_path),
        container("ended", tmp_path, "Exited (0) 1 hour ago", "exited"),
        container("ill", tmp_path, "Exited (137) 1 hour ago", "exited"),
        container("hung", tmp_path),
    ]
    found = await sections(
        tmp_path, every, well=log, quiet=framed((1, "all well")), ended=framed((1, "bye")), ill=log, hung=b"slow"
    )
    assert found.keys() == {"docker", "docker/well", "docker/ill", "docker/hung"}
    assert found["docker/well"].text == "Error: first\n"
    assert found["docker/ill"].text.splitlines()[-3:] == ["line 49", "Error: first", "well again"]
    assert len(found["docker/ill"].text.splitlines()) == 10
    assert "did not answer" in found["docker/hung"].text
    assert "exited (137)" in found["docker"].text and "hour" not in found["docker"].text


@pytest.mark.parametrize("answer", [None, b"", b"{}", b"[]", b"[{}]", b"<html>"])
async def test_what_is_no_list_of_containers_is_nothing(tmp_path: Path, answer: bytes | None) -> None:
    assert await sections(tmp_path, answer) == {}


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (framed((1, "one"), (2, "two")), "one\ntwo\n"),
        (b"of a terminal\r\n", "of a terminal\r\n"),
        (b"", ""),
        (framed((1, "cut off"))[:-4], "cut "),
        (b"\x01\0\0\0\0\0", "\x01\0\0\0\0\0"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_log_is_read_in_frames_or_as_it_is(log: bytes, text: str) -> None:
    assert decode_log(log) == text
