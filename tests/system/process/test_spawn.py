"""Starting processes, and making sure that they have ended."""

import asyncio
import os
import random
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process import table
from rookery.system.process.child import Child, HeadBuffer, StopTimeouts, TailBuffer
from rookery.system.process.environment import allowed_environment
from rookery.system.process.spawn import Spawner, WorksFor, WorkspaceIdentity
from tests.support.daemon.process import alive, wait_dead
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = pytest.mark.anyio

TREE = str(Path(__file__).parents[2] / "programs" / "tree.py")
HERE = Path("/")
QUICK = StopTimeouts(after_eof=0.2, after_term=0.3, after_kill=2.0)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(new_id())
    yield made
    await made.stop_all()


async def tree(spawner: Spawner, *words: str) -> tuple[Child, dict[str, int]]:
    """Start the program that makes trouble and wait until it has made it; answers the pids by word."""
    child = await spawner.start(
        [sys.executable, TREE, *words], name="tree", cwd=HERE, env=allowed_environment(), stdin=True, stdout="stream"
    )
    assert child.stdout is not None
    pids: dict[str, int] = {}
    async with asyncio.timeout(20):
        while (line := await child.stdout.readline()) != b"ready\n":
            word, pid = line.split()
            pids[word.decode()] = int(pid)
    return child, pids


async def test_a_command_runs_with_exactly_the_environment_it_was_given(spawner: Spawner) -> None:
    done = await spawner.run(["env"], name="env", cwd=HERE, env={"ONLY": "this"}, timeout=10)
    names = {line.split(b"=")[0] for line in done.stdout.splitlines()}
    assert names == {b"ONLY", table.MARKER.encode()}


async def test_the_allow_list_passes_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-123")
    monkeypatch.setenv("LC_TIME", "C")
    found = allowed_environment({"EXTRA": "1"})
    assert "ANTHROPIC_API_KEY" not in found
    assert found["LC_TIME"] == "C"
    assert found["EXTRA"] == "1"
    assert found["PATH"] == os.environ["PATH"]


async def test_a_childs_marker_tells_whom_it_works_for(tmp_path: Path) -> None:
    one, other = (WorkspaceIdentity(tmp_path / name, tmp_path / f"{name}.git", 1) for name in ("one", "other"))
    made = Spawner(new_id())
    made.find_workspace = lambda folder: {one.folder: one, other.folder: other}.get(folder)

    async def marker(works_for: WorksFor) -> str:
        argv = ["sh", "-c", f"printf %s ${table.MARKER}"]
        return (
            await made.run(argv, name="sh", cwd=HERE, env=allowed_environment(), timeout=20, works_for=works_for)
        ).stdout.decode()

    first, again, second = [await marker(home.folder) for home in (one, one, other)]
    assert (
        first != again
        and made.find_origin([first]) == made.find_origin([again]) == made.find_origin([first, again]) == one
    )
    assert made.find_origin([second]) == other
    user, nobody, unknown = await marker("user"), await marker(None), await marker(tmp_path / "none")
    assert made.find_origin([user]) == "user"
    assert made.find_origin([nobody]) is made.find_origin([unknown]) is None
    # Where marks do not agree, one of them was made up.
    for two in ((first, second), (first, user), (first, nobody), (user, nobody)):
        assert made.find_origin(two) is None
    for made_up in ("x", "1.workspace-7", "1.workspace--1", "1.workspace-", "1.workspace-\u0661", "1.", "1.user.user"):
        assert made.find_origin([f"{made.instance}.{made_up}"]) is None, made_up
    # Of another Rookery: the one that has started this one, or one that this one's child has started.
    assert made.find_origin([]) == made.find_origin(["another.1.user"]) == "outside"
    assert made.find_origin([f"{first}:another.1.user"]) == one
    made.earlier_instances = frozenset({"earlier"})
    assert made.find_origin(["earlier.1.user"]) is None


async def test_input_output_and_return_code_come_through(spawner: Spawner) -> None:
    done = await spawner.run(
        ["sh", "-c", "cat; echo no >&2; exit 3"],
        name="sh",
        cwd=HERE,
        env=allowed_environment(),
        timeout=10,
        input=b"yes",
    )
    assert (done.returncode, done.stdout, done.stderr, done.cut) == (3, b"yes", b"no\n", 0)


async def test_output_beyond_the_limit_is_counted_and_not_kept(spawner: Spawner) -> None:
    done = await spawner.run(
        ["head", "-c", "300000", "/dev/zero"], name="head", cwd=HERE, env=allowed_environment(), timeout=10, limit=1000
    )
    assert len(done.stdout) == 1000
    assert done.cut == 299_000


async def test_a_flood_of_output_is_drained_into_bounded_memory(spawner: Spawner) -> None:
    ring = TailBuffer(limit=1000)
    child = await spawner.start(
        ["sh", "-c", "head -c 5000000 /dev/zero; echo end"],
        name="flood",
        cwd=HERE,
        env=allowed_environment(),
        stdout=ring,
    )
    async with asyncio.timeout(20):
        assert await child.wait() == 0
        assert await child.wait_drained(10)
    assert bytes(ring).endswith(b"end\n")
    assert len(bytes(ring)) == 1000
    assert ring.dropped == 5_000_004 - 1000
    assert "bytes before this were dropped" in ring.text()


async def test_output_to_a_file_is_appended_and_private(spawner: Spawner, tmp_path: Path) -> None:
    path = tmp_path / "out"
    for _ in range(2):
        child = await spawner.start(["echo", "line"], name="echo", cwd=HERE, env=allowed_environment(), stdout=path)
        async with asyncio.timeout(10):
            await child.wait()
    assert path.read_text() == "line\nline\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("argv", "cwd", "words"),
    [
        (["no-such-program-here"], HERE, "no-such-program-here was not found"),
        (["true"], Path("/no/such/folder"), "/no/such/folder does not exist"),
        (["/etc/passwd"], HERE, "Permission denied"),
        (["nul\0byte"], HERE, "null byte"),
    ],
)
async def test_what_cannot_be_started_says_why(spawner: Spawner, argv: list[str], cwd: Path, words: str) -> None:
    with pytest.raises(RookeryError) as caught:
        await spawner.start(argv, name="it", cwd=cwd, env=allowed_environment())
    assert caught.value.code == "spawn-failed"
    assert words in caught.value.message
    assert not spawner.children


async def test_a_time_out_ends_the_whole_tree(spawner: Spawner) -> None:
    with pytest.raises(RookeryError) as caught:
        await spawner.run(
            [sys.executable, TREE, "plain", "setsid"], name="tree", cwd=HERE, env=allowed_environment(), timeout=1.0
        )
    assert caught.value.code == "timeout"
    assert not table.find_marked(table.match_instance(spawner.instance))


@requirement("house.stop.child")
async def test_d04_a_child_that_ignores_end_of_input_and_term_is_killed(spawner: Spawner) -> None:
    child, pids = await tree(spawner, "deaf", "plain")
    ladder = StopTimeouts()
    assert ladder.after_eof + ladder.after_term + ladder.after_kill < 10
    async with asyncio.timeout(10):
        await child.stop()
    assert child.returncode == -signal.SIGKILL
    assert not any(alive(pid) for pid in pids.values())


@requirement("house.stop.child")
async def test_a_child_that_ends_at_end_of_input_is_not_signalled(spawner: Spawner) -> None:
    child = await spawner.start(
        ["cat"], name="cat", cwd=HERE, env=allowed_environment(), stdin=True, stdout=HeadBuffer()
    )
    async with asyncio.timeout(10):
        await child.stop()
    assert child.returncode == 0


async def test_a_child_that_obeys_term_is_not_killed(spawner: Spawner) -> None:
    child, _ = await tree(spawner)
    async with asyncio.timeout(10):
        await child.stop(QUICK)
    assert child.returncode == -signal.SIGTERM


@requirement("house.stop.child")
@pytest.mark.parametrize("deaf", [[], ["deaf"]], ids=["obedient", "deaf"])
async def test_d05_grandchildren_that_left_the_group_are_gone_after_stop(spawner: Spawner, deaf: list[str]) -> None:
    child, pids = await tree(spawner, *deaf, "plain", "setsid", "double")
    assert os.getsid(pids["setsid"]) != child.pid
    async with asyncio.timeout(10):
        await child.stop(QUICK)
    assert not any(alive(pid) for pid in pids.values())


async def test_d05_stopping_one_child_leaves_the_others_alone(spawner: Spawner) -> None:
    one, ones = await tree(spawner, "setsid")
    two, twos = await tree(spawner, "setsid")
    async with asyncio.timeout(20):
        await one.stop(QUICK)
        assert not any(alive(pid) for pid in ones.values())
        assert all(alive(pid) for pid in twos.values())
        await two.stop(QUICK)


async def test_d06_death_is_known_while_a_descendant_still_holds_the_output(spawner: Spawner) -> None:
    child, pids = await tree(spawner, "holds", "exit")
    async with asyncio.timeout(10):
        assert await child.wait() == 7
    assert child.stdout is not None and not child.stdout.at_eof()
    assert alive(pids["holds"])
    async with asyncio.timeout(10):
        await child.stop(QUICK)
    assert not alive(pids["holds"])


async def test_a_group_follows_its_leader_without_being_asked(spawner: Spawner) -> None:
    child, pids = await tree(spawner, "plain", "exit")
    async with asyncio.timeout(10):
        assert await child.wait() == 7
        await asyncio.to_thread(wait_dead, pids["plain"])


async def test_a_group_whose_number_has_become_somebody_elses_is_left_alone(spawner: Spawner) -> None:
    """As if the pid had been used again: a dead child's group is only what it was at the leader's death."""
    child = await spawner.start(["true"], name="true", cwd=HERE, env=allowed_environment())
    stranger = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    try:
        async with asyncio.timeout(10):
            await child.wait()
        child.pid = stranger.pid
        async with asyncio.timeout(10):
            await child.stop(QUICK)
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


@soak
async def test_d11_many_short_children_leave_no_zombie(spawner: Spawner) -> None:
    async def one() -> None:
        done = await spawner.run(["true"], name="true", cwd=HERE, env=allowed_environment(), timeout=60)
        assert done.returncode == 0

    before = {child.pid for child in psutil.Process().children()}
    for _ in range(repetitions(2, 20)):
        await asyncio.gather(*(one() for _ in range(50)))
    assert not spawner.children
    children = [child for child in psutil.Process().children() if child.pid not in before]
    left = [child for child in children if child.status() == psutil.STATUS_ZOMBIE]
    assert not left


async def test_d12_a_child_outlives_the_thread_that_started_it() -> None:
    made: list[Spawner] = []

    def elsewhere() -> None:
        async def start() -> None:
            made.append(Spawner(new_id()))
            await made[0].start(["sleep", "60"], name="sleep", cwd=HERE, env=allowed_environment())

        asyncio.run(start())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
    # A parent-death signal would have come with the end of the thread, before join returned.
    (child,) = made[0].children
    assert alive(child.pid)
    child.kill_now()
    assert await asyncio.to_thread(child._process.wait, 10) == -signal.SIGKILL


async def test_d13_no_free_descriptor_is_an_error_and_is_recovered_from(spawner: Spawner) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = psutil.Process().num_fds()
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 1, before[1]))
    try:
        for _ in range(5):
            with pytest.raises(RookeryError) as caught:
                await spawner.run(["true"], name="true", cwd=HERE, env=allowed_environment(), timeout=10)
            assert caught.value.code == "spawn-failed"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert psutil.Process().num_fds() == descriptors
    assert not spawner.children
    assert (await spawner.run(["true"], name="true", cwd=HERE, env=allowed_environment(), timeout=10)).returncode == 0


async def test_d17_a_clock_that_jumps_ends_nothing_early(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    child = await spawner.start(
        ["cat"], name="cat", cwd=HERE, env=allowed_environment(), stdin=True, stdout=HeadBuffer()
    )
    for jump in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        done = await spawner.run(["sleep", "0.2"], name="sleep", cwd=HERE, env=allowed_environment(), timeout=30)
        assert done.returncode == 0
    assert child.returncode is None
    # Who a process is does not hang on the clock either: Linux counts from boot.
    ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    assert child.started == ticks / os.sysconf("SC_CLK_TCK")


@soak
async def test_d18_cancelling_at_any_moment_leaks_nothing(spawner: Spawner) -> None:
    chance = random.Random(18)
    descriptors = psutil.Process().num_fds()

    async def life() -> None:
        child = await spawner.start(
            ["cat"],
            name="cat",
            cwd=HERE,
            env=allowed_environment(),
            stdin=True,
            stdout=HeadBuffer(),
            stderr=HeadBuffer(),
        )
        try:
            assert child.stdin is not None
            child.stdin.write(b"x")
            await child.stdin.drain()
            await spawner.run(["true"], name="true", cwd=HERE, env=allowed_environment(), timeout=10)
        finally:
            await child.stop(QUICK)

    async def cut_short() -> None:
        task = asyncio.create_task(life())
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
            if chance.random() < 0.1:
                await asyncio.sleep(chance.random() / 200)
        task.cancel()
        await asyncio.wait({task})

    for _ in range(repetitions(5, 50)):
        await asyncio.gather(*(cut_short() for _ in range(20)))
    async with asyncio.timeout(30):
        await spawner.stop_all()
    assert not table.find_marked(table.match_instance(spawner.instance))
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("child ")]
    assert psutil.Process().num_fds() <= descriptors + 2


async def test_without_pidfd_the_death_of_a_child_is_known_too(
    spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    child, pids = await tree(spawner, "deaf", "setsid")
    async with asyncio.timeout(15):
        await child.stop(QUICK)
    assert not any(alive(pid) for pid in pids.values())


async def test_a_marker_names_every_daemon_above_a_process(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(table.MARKER, "outer.1")
    done = await spawner.run(["env"], name="env", cwd=HERE, env={}, timeout=10)
    marker = done.stdout.decode().strip().partition("=")[2]
    assert table.match_instance("outer")(marker)
    assert table.match_instance(spawner.instance)(marker)
    assert not table.match_instance("oute")(marker)
    assert not table.match_instance("uter")(marker)
