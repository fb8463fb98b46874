"""The daemon, killed at every step of creating, deleting and restoring workspaces, also of many at once."""

import ast
import http.client
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon.events import Reader
from tests.support.daemon.process import Daemon, rookery, up, wait_dead
from tests.support.requirements import requirement
from tests.support.workspaces.deletion import contents, fill, index_of, make_workspace
from tests.support.workspaces.service import branches, git, make_clone, make_repository

SOURCE = Path(__file__).parents[3] / "src" / "rookery" / "workspaces"


def steps(*kinds: str) -> list[str]:
    """Return the fault points of these kinds, such as `delete`, that the source names."""
    found = {
        str(ast.literal_eval(node.args[0]))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault_point"
    }
    return sorted(name for name in found if name.partition(".")[0] in kinds)


JSON = {"Content-Type": "application/json"}
# Each is a chain of lives: one of them sets right what the one before left, and is killed at something else.
CHAINS = 4
KINDS = (steps("create", "prepare"), steps("delete"), steps("restore"))


def chain(number: int) -> list[str]:
    """The steps to be killed at, of another kind each time: what goes on after a crash must not meet them."""
    rounds = itertools.zip_longest(*(names[number::CHAINS] for names in KINDS))
    return [name for names in rounds for name in names if name is not None]


def test_every_step_is_in_a_chain_and_no_two_of_a_kind_follow_each_other() -> None:
    chains = [chain(number) for number in range(CHAINS)]
    assert sorted(itertools.chain(*chains)) == sorted(itertools.chain(*KINDS))
    assert len(KINDS[0]) >= 10 and min(map(len, KINDS)) >= 8
    for one in chains:
        kinds = [KINDS.index(next(names for names in KINDS if name in names)) for name in one]
        assert all(first != second for first, second in itertools.pairwise(kinds))


@dataclass
class Kept:
    """A workspace with work of every kind in it, as it was before."""

    place: Path
    head: str
    bytes: dict[str, object]
    index: str

    @classmethod
    def of(cls, app: Path, name: str) -> "Kept":
        place = make_workspace(app, name, app.parent / name)
        head = fill(place)
        return cls(place, head, contents(place), index_of(place))

    def is_whole(self) -> None:
        assert contents(self.place) == self.bytes
        assert index_of(self.place) == self.index
        assert git(self.place, "rev-parse", "HEAD") == self.head


@dataclass
class Lives:
    """One daemon after the other on one repository."""

    app: Path
    daemon: Daemon = field(init=False)
    kept: dict[str, Kept] = field(default_factory=dict[str, Kept])
    deleted: list[str] = field(default_factory=list[str])

    def begin(self, fault: str = "") -> None:
        self.daemon = up(str(self.app), env={"ROOKERY_FAULT": fault} if fault else None)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = self.daemon.http(method, path, json.dumps(body).encode() if body else None, headers=JSON)
        assert answer.status < 300, answer.body
        return answer.json()

    @property
    def workspaces(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.ask("GET", "/api/workspaces") if not one["main"]}

    @property
    def project(self) -> str:
        return self.ask("GET", "/api/projects")[0]["id"]

    # ---- what it is killed at

    def killed_at(self, step: str) -> None:
        """Do something that comes to this step, and die there."""
        name = step.replace(".", "-")
        kind = step.partition(".")[0]
        if kind == "restore":
            self.ask("DELETE", f"/api/workspaces/{self.project}/{name}", force=True, wait=True)
            assert not self.kept[name].place.exists()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            match kind:
                case "create" | "prepare":
                    self.ask("POST", "/api/workspaces", name=name, agent=False, wait=True)
                case "delete":
                    self.ask("DELETE", f"/api/workspaces/{self.project}/{name}", force=True, wait=True)
                case _:
                    self.ask("POST", f"/api/trash/{name}/restore")
        wait_dead(self.daemon.pid)

    # ---- what the next life finds

    def is_set_right(self, step: str) -> None:
        name = step.replace(".", "-")
        match step.partition(".")[0]:
            case "create" | "prepare":
                self._made_or_gone(step, name)
            case "delete":
                assert name not in self.workspaces
                assert not self.kept[name].place.exists()
                assert name not in branches(self.app)
                (one,) = [one for one in self.ask("GET", "/api/trash") if one["name"] == name]
                assert contents(self.daemon.state / "trash" / one["id"]) == self.kept[name].bytes
                assert git(self.app, "rev-parse", f"refs/rookery/trash/{one['id']}") == self.kept[name].head
                self.deleted.append(name)
            case _:
                assert self.workspaces[name]["state"] == "ready"
                self.kept[name].is_whole()
                assert name not in [one["name"] for one in self.ask("GET", "/api/trash")]

    def _made_or_gone(self, step: str, name: str) -> None:
        there = self._prepared(name)
        if there is None:
            assert step in ("create.begun", "create.branch")
            assert name not in branches(self.app)
            assert name not in git(self.app, "worktree", "list")
            return
        assert (there["state"], there["branch"]) == ("ready", name)
        place = Path(there["path"])
        assert git(place, "status", "--porcelain", "--ignored") == "!! .env"
        assert (place / ".env").read_text() == "secret"

    def _prepared(self, name: str) -> dict[str, Any] | None:
        reader = Reader(self.daemon, "/api/events")
        try:
            while (there := self.workspaces.get(name)) is not None and there["state"] == "preparing":
                assert reader.next() is not None
            return there
        finally:
            reader.close()

    def nothing_is_left_behind(self) -> None:
        listed = git(self.app, "worktree", "list", "--porcelain").splitlines()
        assert not [line for line in listed if line.startswith(("locked", "prunable"))]
        unfinished = [self.daemon.state.glob(f"projects/*/{kind}/*") for kind in ("creating", "deleting", "restoring")]
        assert not list(itertools.chain(*unfinished))
        git(self.app, "fsck", "--strict")


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    app = make_repository(tmp_path / "app", {".gitignore": ".env\n", ".keepfiles": ".env\n"})
    (app / ".env").write_text("secret")
    made = Lives(app)
    yield made
    rookery("down")


@requirement("ws.crash.whole", "ws.delete.restore")
@pytest.mark.parametrize("number", range(CHAINS))
def test_e01_e02_killed_at_every_step_the_next_daemon_finds_all_of_it_whole_or_gone(lives: Lives, number: int) -> None:
    before = contents(lives.app)
    names = chain(number)
    for step in names:
        if step.startswith(("delete", "restore")):
            name = step.replace(".", "-")
            lives.kept[name] = Kept.of(lives.app, name)
    for step, last in zip([*names, ""], ["", *names], strict=True):
        lives.begin(step)
        if last:
            lives.is_set_right(last)
        if step:
            lives.killed_at(step)
    lives.nothing_is_left_behind()
    # What is only staged must also outlive git's housekeeping.
    git(lives.app, "gc", "--quiet", "--prune=now")
    for name in lives.deleted:
        lives.ask("POST", f"/api/trash/{name}/restore")
    for one in lives.kept.values():
        one.is_whole()
    assert lives.ask("GET", "/api/trash") == []
    assert {path: kept for path, kept in contents(lives.app).items() if not path.startswith(".git/")} == {
        path: kept for path, kept in before.items() if not path.startswith(".git/")
    }


@requirement("ws.create.rollback")
def test_e08_twenty_at_once_from_a_remote_tracking_branch_are_twenty_good_ones(tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app")
    lives = Lives(app)
    lives.begin()
    head = git(app, "rev-parse", "origin/main")

    def make(number: int) -> dict[str, Any]:
        return lives.ask("POST", "/api/workspaces", name=f"task-{number}", base="origin/main", agent=False, wait=True)

    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(make, range(20)))
    assert {one["state"] for one in made} == {"ready"}
    assert set(lives.workspaces) == {f"task-{number}" for number in range(20)}
    assert len({one["path"] for one in made}) == 20
    for one in made:
        place = Path(one["path"])
        assert git(place, "status", "--porcelain", "--branch") == f"## {one['name']}"
        assert git(place, "rev-parse", "HEAD") == head
    assert branches(app) == {"main", *lives.workspaces}
    lives.nothing_is_left_behind()
    assert rookery("down").returncode == 0
