"""The tour with the real OpenCode: its report matches what happened."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rookery.system.confinement.kernel import find_support
from tests.support.cli.user import at_a_terminal, user_environment
from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery, up
from tests.support.opencode.process import installed
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PNG = b"\x89PNG\r\n\x1a\n"


@requirement("kit.demo.tour")
async def test_two_agents_edit_files_call_a_tool_and_show_toasts_in_screenshots(tmp_path: Path) -> None:
    daemon = await asyncio.to_thread(up)
    try:
        await a_demo_beside(daemon, tmp_path)
    finally:
        assert rookery("down").returncode == 0


async def a_demo_beside(daemon: Daemon, tmp_path: Path) -> None:
    temporary = Path(os.environ["HOME"]).parent / "t"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "PATH": installed().search_path, "ROOKERY_AGENTS_VERSION": "path"}
    done = await asyncio.to_thread(
        subprocess.run,
        [ROOKERY, "demo", "--once", "--json", "--pictures", str(tmp_path / "pictures")],
        env=os.environ | env,
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert report["server"] == {"name": "tickets", "status": "connected", "era": "2025-11-25", "tools": 1}
    # A test of its own says that this machine can: see tests/system/confinement/test_kernel.py.
    assert report["sandbox"] == ("workspace" if find_support().abi > 0 else "off")
    first, second = report["agents"]

    assert first["files"] == ["greet.py"]
    assert "+    return f\"Hello, {name or 'world'}!\"" in first["patch"]
    assert first["tools"] == ["tickets_read_ticket", "read", "edit", "bash"]
    assert second["files"] == ["farewell.py", "test_farewell.py"]
    assert second["tools"] == ["tickets_read_ticket", "write", "write", "bash"]
    for one in (first, second):
        assert one["said"].endswith("ests pass.")
        assert one["toast"] == f"{one['workspace']} is ready for review"
        assert one["screenshot_of"] == "terminal"
        assert Path(one["screenshot"]).read_bytes().startswith(PNG)
        assert not Path(one["path"]).exists()
    assert list(temporary.iterdir()) == []
    assert list(Path.home().rglob("*")) == []

    # The user's own daemon runs beside it, and has heard of nothing.
    assert daemon.refresh().http("GET", "/api/projects").json() == []
    assert not any("demo" in json.dumps(line) for line in daemon.log())


@requirement("kit.demo.tour")
def test_commands_that_the_demo_suggests_leave_nothing_in_the_users_home() -> None:
    temporary = Path.home().parent / "t"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "PATH": installed().search_path, "ROOKERY_AGENTS_VERSION": "path"}
    with subprocess.Popen([ROOKERY, "demo", "--json"], env=os.environ | env, stdout=subprocess.PIPE) as demo:
        try:
            assert demo.stdout is not None
            report = json.loads(wait_for_line(demo.stdout.fileno(), b"\n", 500))
            # As `export ROOKERY_HOME=...` in another terminal, in the user's own environment.
            second = env | {"ROOKERY_HOME": report["home"]}
            name = report["agents"][0]["workspace"]
            said = subprocess.run(
                [ROOKERY, "session", "messages", name],
                env=user_environment(second),
                capture_output=True,
                timeout=60,
                check=True,
            )
            assert b"ests pass." in said.stdout
            with at_a_terminal("agent", "attach", name, env=second, size=(120, 40)) as person:
                person.sees(lambda text: "ests pass." in text, 200)
                person.types("\x03")
                assert person.ends() == 0
            demo.send_signal(signal.SIGINT)
            assert demo.wait(SECONDS) == 0
        finally:
            demo.kill()
    assert list(Path.home().rglob("*")) == []
    assert list(temporary.iterdir()) == []
