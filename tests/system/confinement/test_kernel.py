"""Programs that the kernel confines."""

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.confinement.kernel import confine, find_support, require_support, run_confined
from rookery.system.confinement.locations import DEVICES, SYSTEM_FOLDERS
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import KernelSupport
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.environment import allowed_environment
from rookery.system.process.spawn import Spawner

pytestmark = pytest.mark.anyio

PYTHON = tuple({sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])})
BASE = ConfinementPolicy(execute=(*SYSTEM_FOLDERS, *PYTHON), devices=DEVICES)


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(new_id())
    yield made
    await made.stop_all()


async def run(spawner: Spawner, policy: ConfinementPolicy | None, *argv: str) -> tuple[int, str]:
    done = await spawner.run(
        argv, name="probe", cwd=Path("/"), env=allowed_environment(), timeout=20, confinement=policy
    )
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_a_confined_program_reads_and_writes_only_what_is_listed(spawner: Spawner, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.write_text("secret")
    policy = ConfinementPolicy(execute=BASE.execute, devices=DEVICES, write=(str(inside),))
    script = f"echo hello > {inside}/a && cat {inside}/a; cat {outside} || echo refused; echo x > {tmp_path}/b"
    assert (await run(spawner, None, "sh", "-c", script))[0] == 0
    code, output = await run(spawner, policy, "sh", "-c", script)
    assert code != 0
    assert "hello" in output and "refused" in output and "secret" not in output
    assert (tmp_path / "b").read_text() == "x\n"  # of the run that was not confined


async def test_this_process_stays_unconfined_after_it_has_started_one(spawner: Spawner, tmp_path: Path) -> None:
    assert (await run(spawner, BASE, "true"))[0] == 0
    assert spawner.has_confined
    (tmp_path / "file").write_text("written")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
    assert "NoNewPrivs:\t0" in Path("/proc/self/status").read_text()
    assert (await run(spawner, None, "ls", str(tmp_path)))[0] == 0


async def test_the_thread_of_a_confined_program_lasts_as_long_as_it(spawner: Spawner) -> None:
    """A program that asked for a signal at the end of its parent gets it when that thread ends."""
    child = await spawner.start(
        ["sleep", "60"], name="sleep", cwd=Path("/"), env=allowed_environment(), confinement=BASE
    )
    threads = [thread for thread in threading.enumerate() if thread.name == "confined"]
    assert len(threads) == 1
    await child.stop()
    threads[0].join(10)
    assert not threads[0].is_alive()


async def test_a_program_that_the_sandbox_does_not_allow_is_named(spawner: Spawner, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(RookeryError, match="its sandbox does not allow it to run") as failure:
        await run(spawner, BASE, str(program))
    assert "sandbox.read" in failure.value.remedy


async def test_a_confined_program_signals_only_its_own(spawner: Spawner) -> None:
    script = f"sleep 60 & kill $! && echo own; kill -0 {os.getpid()} || echo refused"
    assert (await run(spawner, BASE, "sh", "-c", script))[1].split("\n")[0] == "own"
    assert "refused" in (await run(spawner, BASE, "sh", "-c", script))[1]


async def test_without_network_no_connection_is_made(spawner: Spawner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')"
        policy = ConfinementPolicy(execute=BASE.execute, devices=DEVICES, network=False)
        assert "connected" in (await run(spawner, BASE, sys.executable, "-c", script))[1]
        assert "PermissionError" in (await run(spawner, policy, sys.executable, "-c", script))[1]


async def test_tcp_is_limited_to_the_ports_of_the_policy(spawner: Spawner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port, refused = server.getsockname()[1], other.getsockname()[1]
        script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('connected')"
        policy = ConfinementPolicy(execute=BASE.execute, devices=DEVICES, connect_ports=(port,))
        assert "connected" in (await run(spawner, policy, sys.executable, "-c", script, str(port)))[1]
        assert "PermissionError" in (await run(spawner, policy, sys.executable, "-c", script, str(refused)))[1]


MULTIPATH = "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect(address)"
FAST_OPEN = "s = socket.socket(); s.sendto(b'x', 0x20000000, address)"


@pytest.mark.parametrize("way", [MULTIPATH, FAST_OPEN])
async def test_a_limited_port_is_not_reached_by_a_way_around_landlock(spawner: Spawner, way: str) -> None:
    """Landlock sees neither multipath TCP nor a connection that is opened by sending."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"import socket, sys; address = ('127.0.0.1', int(sys.argv[1])); {way}; print('connected')"
        policy = ConfinementPolicy(execute=BASE.execute, devices=DEVICES, connect_ports=(443,))
        port = str(server.getsockname()[1])
        assert "connected" in (await run(spawner, BASE, sys.executable, "-c", script, port))[1]
        assert "PermissionError" in (await run(spawner, policy, sys.executable, "-c", script, port))[1]


def test_a_kernel_without_landlock_is_an_error_with_a_remedy() -> None:
    with pytest.raises(RookeryError) as failure:
        require_support(KernelSupport(0, None))
    assert failure.value.code == "sandbox-unavailable"
    assert "sandbox.unavailable" in failure.value.remedy


def test_in_ci_a_kernel_that_cannot_confine_is_a_failure() -> None:
    """Elsewhere too, unless nobody expects it: without Landlock the tests of the whole system run unconfined."""
    if find_support().abi < 1 and not os.environ.get("CI"):
        pytest.skip("this kernel has no Landlock")
    assert find_support().abi >= 1
    assert find_support().architecture is not None


def test_an_error_of_the_start_reaches_the_caller() -> None:
    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_confined(BASE, fail, int)


def test_a_thread_can_be_confined_alone() -> None:
    refused: list[bool] = []

    def probe() -> None:
        confine(BASE)
        try:
            list(Path.home().iterdir())
        except PermissionError:
            refused.append(True)

    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    assert refused == [True]
    assert Path.home().is_dir()
