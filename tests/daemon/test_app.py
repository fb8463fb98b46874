"""A daemon starts, is found, stops, and leaves nothing behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from tests.support.daemon.foreground import (
    foreground,
    on_a_terminal,
    pids_in,
    read_daemon,
    wait_for_line,
    with_children,
)
from tests.support.daemon.process import SECONDS, Daemon, alive, kill, rookery, up, wait_dead
from tests.support.requirements import requirement

# What may stay after an orderly stop; none of it hinders the next start.
REMAINS = {
    *("approvals.seal", "audit.db", "audit.key", "daemon.lock", "instances.json", "logs", "opencode", "pins.seal"),
    *("plugins", "rookery.db", "token"),
}


def names(state: Path) -> set[str]:
    return {path.name for path in state.iterdir()}


@requirement("house.start.up", "house.stop.ordered")
def test_up_serves_in_the_background_and_down_leaves_nothing_that_hinders(state: Path) -> None:
    done = rookery("up", "-d")
    assert done.returncode == 0
    daemon = read_daemon(state)
    assert done.stdout == f"rookery is up at {daemon.runtime['url']} (pid {daemon.pid})\n"
    assert daemon.http("GET", "/api/health", token=None).status == 200
    assert names(state) >= REMAINS | {"daemon.json", "rookery.sock"}
    assert rookery("down").stdout == "rookery is down\n"
    wait_dead(daemon.pid)
    assert names(state) == REMAINS
    again = up()
    assert again.token == daemon.token
    assert again.runtime["instance"] != daemon.runtime["instance"]
    assert rookery("down").returncode == 0


@requirement("house.start.up")
def test_up_twice_in_the_background_is_one_daemon(daemon: Daemon) -> None:
    done = rookery("up", "-d", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["pid"] == daemon.pid
    assert json.loads(done.stdout)["started"] is False


@requirement("house.start.up")
def test_a_start_that_fails_says_why_and_where_the_log_is(state: Path) -> None:
    (state / "rookery.db").mkdir()
    done = rookery("up", "-d")
    assert done.returncode == 1
    assert done.stdout == ""
    log = state / "logs" / "daemon.jsonl"
    assert "rookery.db" in done.stderr and f"its log: {log}" in done.stderr
    assert "rookery.db" in log.read_text()
    (state / "rookery.db").rmdir()
    (state / "token").write_text("x")
    (state / "token").chmod(0o644)
    done = rookery("up", "-d")
    assert done.returncode == 1
    assert f"rm {state / 'token'}" in done.stderr and str(log) in done.stderr


@requirement("house.place.state")
@pytest.mark.parametrize("named", [True, False], ids=["ROOKERY_HOME", "platform"])
def test_every_file_of_the_daemon_is_in_the_state_folder(named: bool) -> None:
    folder = Path.home().parent / "named" if named else Path.home() / ".local" / "state" / "rookery"
    env = {"ROOKERY_HOME": str(folder) if named else ""}
    assert rookery("up", "-d", env=env).returncode == 0
    runtime = Daemon(folder).refresh().runtime
    assert names(folder) >= REMAINS | {"daemon.json", "rookery.sock"}
    assert Path(runtime["token_file"]) == folder / "token"
    assert (folder / "logs" / "daemon.jsonl").exists()
    assert (folder / "opencode" / "rookery-mcp.json").exists(), "a generated file"
    assert names(Path.home()) == (set[str]() if named else {".local"})
    assert rookery("down", env=env).returncode == 0


def test_a_daemon_that_dies_at_once_is_told_with_its_last_words(state: Path) -> None:
    done = rookery("up", "-d", env={"PYTHONPATH": str(broken(state))})
    assert done.returncode == 1
    assert "the daemon did not start" in done.stderr
    assert "broken on purpose" in done.stderr
    assert "daemon.out" in done.stderr and "daemon.jsonl" in done.stderr


def broken(state: Path) -> Path:
    """A folder whose `httptools`, which only the daemon needs, cannot be imported."""
    (state / "path").mkdir()
    (state / "path" / "httptools.py").write_text("raise SystemExit('broken on purpose')\n")
    return state / "path"


def test_what_lies_in_the_current_folder_is_not_imported(tmp_path: Path) -> None:
    for name in ("msgspec", "starlette", "psutil", "json", "logging", "rookery"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this file must not run')\n")
    done = rookery("up", "-d", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Nobody listens there.
    offline = {"npm_config_registry": "http://127.0.0.1:9"}
    assert rookery("doctor", "--json", cwd=tmp_path, env=offline).stdout.startswith('{"version"')
    assert rookery("down", cwd=tmp_path).returncode == 0


@requirement("house.start.single")
def test_d09_a_second_daemon_is_refused_and_told_of_the_first(daemon: Daemon) -> None:
    done = rookery("up")
    assert done.returncode == 1
    assert f"pid {daemon.pid} at {daemon.runtime['url']}" in done.stderr
    assert "rookery down" in done.stderr
    assert daemon.http("GET", "/api/health", token=None).json()["instance"] == daemon.runtime["instance"]


@requirement("house.start.single")
def test_d09_of_many_starts_at_once_exactly_one_wins(state: Path) -> None:
    words = [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--foreground"]
    with ExitStack() as stack:
        started = [stack.enter_context(subprocess.Popen(words, stderr=subprocess.PIPE, cwd="/")) for _ in range(6)]
        stack.callback(lambda: [one.kill() for one in started])
        winners = [one for one in started if came_up(one)]
        assert len(winners) == 1
        assert read_daemon(state).pid == winners[0].pid
        assert {one.wait(SECONDS) for one in started if one not in winners} == {1}
        assert rookery("down").returncode == 0
        assert winners[0].wait(SECONDS) == 0


def came_up(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it says that it is up, or ends without."""
    assert process.stderr is not None
    return any(b"up at" in line for line in iter(process.stderr.readline, b""))


@requirement("house.start.single", "house.runtime.file")
def test_d10_stale_files_of_a_killed_daemon_do_not_hinder_and_do_not_deceive(state: Path) -> None:
    first = up()
    kill(first.pid)
    assert (state / "daemon.json").exists() and (state / "rookery.sock").exists()
    done = rookery("status", "--no-start")
    assert done.returncode == 5
    second = up()
    assert second.pid != first.pid
    assert rookery("down").returncode == 0


@requirement("house.runtime.file")
def test_d10_a_forged_runtime_file_with_a_living_pid_is_not_a_daemon(daemon: Daemon) -> None:
    """The pid is that of this test; the socket is even that of a real daemon."""
    forged = daemon.runtime | {"pid": os.getpid()}
    (daemon.state / "daemon.json").write_text(json.dumps(forged))
    told = rookery("status", "--no-start", "--json")
    assert json.loads(told.stdout)["daemon"]["pid"] == daemon.pid
    # Without any, the socket is found where it always is.
    (daemon.state / "daemon.json").write_text("{not json")
    assert rookery("status", "--no-start").returncode == 0
    (daemon.state / "daemon.json").unlink()
    assert rookery("status", "--no-start").returncode == 0
    kill(daemon.pid)
    (daemon.state / "daemon.json").write_text(json.dumps(forged))
    assert rookery("down").stdout == "rookery was not running\n"


@requirement("house.runtime.file")
def test_the_runtime_file_says_what_programs_rely_on(daemon: Daemon) -> None:
    path = daemon.state / "daemon.json"
    assert path.stat().st_mode & 0o777 == 0o600
    found = json.loads(path.read_text())
    assert {"pid", "started", "url", "mcp_url", "socket", "token_file", "version"} <= set(found)
    assert found["url"] == f"http://127.0.0.1:{daemon.port}"
    assert found["mcp_url"] == found["url"] + "/mcp"
    socket = Path(found["socket"])
    assert socket.is_socket() and socket.stat().st_mode & 0o777 == 0o600
    assert Path(found["token_file"]).read_text().strip() == daemon.token
    assert Path(found["token_file"]).stat().st_mode & 0o777 == 0o600


@requirement("house.start.up", "house.stop.ordered")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda one: one.name)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_d08_one_signal_stops_in_order(state: Path, number: signal.Signals, loop: str) -> None:
    with foreground("--set", f"daemon.loop={loop}", "--log-level", "debug") as process:
        daemon = read_daemon(state)
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
    told = [one["message"] for one in daemon.log() if one["logger"] == "rookery.services"]
    started = [line.partition(" is up ")[0] for line in told if " is up " in line]
    stopped = [line.removesuffix(" has stopped") for line in told if line.endswith(" has stopped")]
    assert len(started) > 5 and stopped == started[::-1]
    assert names(state) == REMAINS
    assert json.loads((state / "instances.json").read_text()) == []


@requirement("house.stop.ordered")
def test_d08_a_second_signal_forces_the_end(state: Path, tmp_path: Path) -> None:
    """The child that ignores TERM would hold the orderly stop for seconds."""
    with with_children(tmp_path / "notes", "deaf,setsid") as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGTERM)
        wait_for_line(process.stderr.fileno(), b"a second signal forces it")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 128 + signal.SIGINT
    for pid in pids_in(tmp_path / "notes"):
        wait_dead(pid)
    assert not (state / "daemon.json").exists()
    assert up().pid
    assert rookery("down").returncode == 0


@requirement("house.stop.ordered")
def test_d08_a_signal_during_the_start_stops_it_too(state: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--foreground", "--set", "log.level=debug"],
        stderr=subprocess.PIPE,
        cwd="/",
    )
    assert process.stderr is not None
    with process:
        wait_for_line(process.stderr.fileno(), b"children is up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert not (state / "daemon.json").exists()
    assert json.loads((state / "instances.json").read_text()) == []


@requirement("house.stop.ordered")
@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_down_waits_for_a_daemon_that_is_still_starting_or_stopping(state: Path, tmp_path: Path, phase: str) -> None:
    """A child that ignores TERM holds the stop for seconds; a store that another program holds, the start."""
    if phase == "stopping":
        with with_children(tmp_path / "notes", "deaf") as process:
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            wait_for_line(process.stderr.fileno(), b"stopping: SIGTERM")
            done = rookery("down")
            assert process.wait(SECONDS) == 0
    else:
        words = [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--foreground", "--set", "log.level=debug"]
        up()
        assert rookery("down").returncode == 0
        with closing(sqlite3.connect(state / "rookery.db")) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            with subprocess.Popen(words, stderr=subprocess.PIPE, cwd="/") as process:
                assert process.stderr is not None
                wait_for_line(process.stderr.fileno(), b"children is up")
                done = rookery("down")
                assert process.wait(SECONDS) == 0
    assert f"is {phase}" in done.stderr
    assert done.stdout == "rookery is down\n"
    assert not (state / "daemon.json").exists()


@requirement("house.stop.ordered")
def test_d08_a_terminal_that_is_closed_stops_the_daemon_in_order(state: Path) -> None:
    with on_a_terminal("up") as (pid, ours):
        wait_for_line(ours, b"up at")
        os.close(ours)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert names(state) == REMAINS


@requirement("house.stop.ordered")
def test_control_c_on_a_terminal_stops_it_in_order(state: Path, tmp_path: Path) -> None:
    with on_a_terminal("up") as (pid, ours):
        wait_for_line(ours, b"up at")
        os.write(ours, b"\x03")
        wait_for_line(ours, b"daemon: stopped")
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert names(state) == REMAINS


@requirement("house.start.reap")
@pytest.mark.timeout(240)
def test_d07_what_a_killed_daemon_left_is_ended_and_nothing_else(state: Path, tmp_path: Path) -> None:
    """Twenty children, some of which forked and left their group, some deaf to TERM."""
    kinds = ["plain", "setsid", "double", "deaf,setsid", "plain,setsid,double"]
    # The same program with the same words, started by somebody else; one even with a marker of another Rookery.
    tree = str(Path(__file__).parents[1] / "programs" / "tree.py")
    twins = [
        subprocess.Popen([sys.executable, tree, "setsid"], stdout=subprocess.PIPE, env=os.environ | extra)
        for extra in ({}, {"ROOKERY_SPAWN": os.environ["ROOKERY_SPAWN"] + ":another-instance.1"})
    ]
    strangers: list[int] = [twin.pid for twin in twins]
    try:
        for twin in twins:
            assert twin.stdout is not None
            line = wait_for_line(twin.stdout.fileno(), b"ready")
            strangers += [int(word.split()[1]) for word in line.splitlines() if word.startswith(b"setsid")]
        with with_children(tmp_path / "notes", *(kinds * 4)) as process:
            pids = pids_in(tmp_path / "notes")
            assert len(pids) == 4 * (2 + 2 + 2 + 2 + 4)
            process.kill()
            process.wait(SECONDS)
        assert all(alive(pid) for pid in pids), "killing the daemon alone ends none of them"
        daemon = up()
        assert not any(alive(pid) for pid in pids)
        assert all(alive(pid) for pid in strangers)
        told = [one["message"] for one in daemon.log() if "earlier daemon left" in one["message"]]
        assert told and str(len(pids)) in told[0]
        assert rookery("down").returncode == 0
    finally:
        for twin in twins:
            twin.kill()
            twin.communicate()
        for pid in strangers:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
                wait_dead(pid)


@requirement("house.start.reap")
def test_d07_no_daemon_is_started_from_inside_a_leftover_and_the_next_one_ends_it(state: Path, tmp_path: Path) -> None:
    with with_children(tmp_path / "notes", "plain") as process:
        instance = read_daemon(state).runtime["instance"]
        process.kill()
        process.wait(SECONDS)
    marker = f"{os.environ['ROOKERY_SPAWN']}:{instance}.99"
    assert rookery("up", "-d", env={"ROOKERY_SPAWN": marker}).returncode == 4
    assert all(alive(pid) for pid in pids_in(tmp_path / "notes"))
    assert rookery("up", "-d").returncode == 0
    assert not any(alive(pid) for pid in pids_in(tmp_path / "notes"))
    assert rookery("down").returncode == 0


def test_d17_a_daemon_that_was_suspended_goes_on_and_ends_nobody(state: Path, tmp_path: Path) -> None:
    """Suspended for longer than every time limit of its front."""
    env = {"ROOKERY_LIMITS_KEEP_ALIVE_SECONDS": "0.2", "ROOKERY_LIMITS_HEADER_SECONDS": "0.2"}
    with with_children(tmp_path / "notes", "plain", "setsid", env=env) as process:
        daemon = read_daemon(state)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
        process.send_signal(signal.SIGCONT)
        assert daemon.http("GET", "/api/health", token=None).status == 200
        assert all(alive(pid) for pid in pids_in(tmp_path / "notes"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert not any(alive(pid) for pid in pids_in(tmp_path / "notes"))


def test_d13_a_daemon_with_few_descriptors_recovers_when_they_are_free_again(state: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 64 && exec "$0" up -d', str(Path(sys.executable).with_name("rookery"))],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    daemon = read_daemon(state)
    crowd = [daemon.connect() for _ in range(100)]
    try:
        assert daemon.http("GET", "/api/health", token=None).status == 200
        assert rookery("status", "--no-start").returncode == 0
    finally:
        for one in crowd:
            one.close()
    assert daemon.http("GET", "/api/status").status == 200
    assert rookery("down").returncode == 0


def test_d13_a_daemon_short_of_memory_refuses_and_lives_on(state: Path) -> None:
    daemon = up("--set", "limits.body_bytes=1000000000")
    process = psutil.Process(daemon.pid)
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + 50_000_000, -1))
    try:
        answer = daemon.http("POST", "/api/projects", b"x" * 400_000_000, headers={"Content-Type": "application/json"})
        assert answer.status >= 400
    except OSError:
        pass
    assert daemon.http("GET", "/api/status").status == 200
    assert rookery("down").returncode == 0
