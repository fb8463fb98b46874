"""Which files of a checkout count as part of a command."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rookery.guard import server
from rookery.guard.server import fingerprint_files, list_named_files
from rookery.system.errors import RookeryError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    for name in (
        *("run.sh", "server.js", "package.json", "tools/server.py", "tools/__main__.py", "pkg/serve/web.py"),
        *("bin/helper", "node_modules/.bin/local-server", "index.js", "Makefile", "hook.js", "data.db", "a b.sh"),
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    return made


def named(root: Path, argv: Sequence[str], cwd: str = "", search: str = "/usr/bin") -> set[str]:
    return {str(path.relative_to(root)) for path in list_named_files(argv, root / cwd, root, search)}


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["./run.sh"], {"run.sh"}),
        (["sh", "run.sh", "--fast"], {"run.sh"}),
        (["node", "server.js"], {"server.js"}),
        (["node", "server"], {"server.js"}),
        (["node", "."], {"package.json", "index.js"}),
        (["node", "-r./hook.js", "server.js"], {"hook.js", "server.js"}),
        (["node", "--import=./hook.js", "server.js"], {"hook.js", "server.js"}),
        (["node", "--import", "file:hook.js"], {"hook.js"}),
        (["python3", "tools/server.py"], {"tools/server.py"}),
        (["python3", "tools"], {"tools/__main__.py"}),
        (["python3", "-m", "pkg.serve.web"], {"pkg/serve/web.py"}),
        (["sh", "-c", "cd . && ./run.sh | tee log"], {"run.sh"}),
        (["sh", "a b.sh"], {"a b.sh"}),
        (["npx", "local-server"], {"node_modules/.bin/local-server"}),
        (["env", "X=1", "npm", "run", "serve"], {"package.json"}),
        (["make", "serve"], {"Makefile"}),
        (["server", "--db", "data.db"], {"data.db"}),
        (["npx", "-y", "@modelcontextprotocol/server-filesystem", "."], set[str]()),
        (["uvx", "mcp-server-git"], set[str]()),
        (["no\0path", ""], set[str]()),
    ],
)
def test_c10_a_command_names_these_files_of_the_checkout(root: Path, argv: list[str], found: set[str]) -> None:
    assert named(root, argv) == found


def test_names_are_read_from_where_the_command_runs(root: Path) -> None:
    assert named(root, ["python3", "server.py", "../run.sh"], cwd="tools") == {"tools/server.py", "tools/../run.sh"}
    assert named(root, ["python3", str(root / "tools/server.py")]) == {"tools/server.py"}


def test_c10_a_program_is_looked_for_on_the_path_that_the_command_would_have(root: Path) -> None:
    assert named(root, ["helper"]) == set()
    assert named(root, ["helper"], search=f"/usr/bin:{root}/bin") == {"bin/helper"}
    assert named(root, ["helper"], search="bin:/usr/bin") == {"bin/helper"}
    assert named(root, ["helper"], cwd="bin", search="/usr/bin:") == {"bin/helper"}


def test_what_lies_outside_is_the_users_own_unless_it_leads_inside(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "mine.sh"
    outside.write_text("mine")
    (tmp_path / "link").symlink_to(root / "run.sh")
    (root / "out.sh").symlink_to(outside)
    assert list_named_files([str(outside), "/bin/sh"], root, root) == []
    assert list_named_files([str(tmp_path / "link")], root, root) == [tmp_path / "link"]
    assert named(root, ["./out.sh"]) == {"out.sh"}
    assert fingerprint_files([root / "out.sh"], root) != fingerprint_files([root / "run.sh"], root)


def test_a_checkout_that_is_reached_by_a_link_is_the_same_checkout(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(root)
    assert list_named_files(["./run.sh"], tmp_path / "other", root) == [tmp_path / "other" / "run.sh"]
    assert list_named_files([str(root / "run.sh")], root, tmp_path / "other") == [root / "run.sh"]


def test_what_cannot_be_hashed_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(RookeryError, match="fifo is not a regular file"):
        fingerprint_files(list_named_files(["sh", "fifo"], root, root), root)
    with pytest.raises(RookeryError, match=r"gone\.sh cannot be read"):
        fingerprint_files([root / "gone.sh"], root)
    monkeypatch.setattr(server, "MAX_FILE_BYTES", 6)
    assert fingerprint_files([root / "run.sh"], root)
    with pytest.raises(RookeryError, match="too large"):
        fingerprint_files([root / "server.js"], root)
    monkeypatch.setattr(server, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(server, "MAX_TOTAL_BYTES", 10)
    with pytest.raises(RookeryError, match="too large"):
        fingerprint_files([root / "run.sh", root / "server.js"], root)
    with pytest.raises(RookeryError, match="more than 2000 words"):
        list_named_files(["sh", "-c", " ".join(map(str, range(2_000)))], root, root)
    for number in range(201):
        (root / f"{number}.txt").touch()
    with pytest.raises(RookeryError, match="more than 200 files"):
        list_named_files(["cat", *(f"{number}.txt" for number in range(201))], root, root)
