"""The command line as users and scripts see it."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import rookery as package
from rookery.cli.main import COMMANDS, cli
from tests.support.cli.workspaces import app, made
from tests.support.daemon.foreground import on_a_terminal, wait_for_line
from tests.support.daemon.process import ROOKERY, Daemon, rookery, wait_dead
from tests.support.requirements import requirement

SOURCE = Path(package.__file__).parent
HEAVY = {"pydantic", "starlette", "aiohttp", "mcp", "asyncio", "msgspec", "psutil", "logging", "platformdirs"}


def walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += walk(child, (*path, name))
    return found


ALL = walk(cli)


def imported_by(*words: str) -> set[str]:
    """The top-level packages that a command has imported by its end."""
    code = "import sys; from rookery.cli.main import main\n"
    code += "try: main()\nfinally: sys.stderr.write('imported ' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.rpartition("imported ")[2].split()}


def test_help_imports_nothing_heavy() -> None:
    assert not imported_by("--help") & HEAVY


def test_status_imports_nothing_heavy(daemon: Daemon) -> None:
    assert not imported_by("status", "--json") & (HEAVY - {"logging"})


def test_no_module_of_the_command_line_imports_another_package_by_being_imported() -> None:
    """Only the connection to the daemon is below it, and that imports nothing of ours either."""
    modules = [
        ".".join(("rookery", *path.relative_to(SOURCE).with_suffix("").parts))
        for package in ("cli", "daemon_client")
        for path in (SOURCE / package).rglob("*.py")
        if path.stem != "__init__"
    ]
    code = f"import sys\nfor name in {modules!r}: __import__(name)\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("rookery.")}
    assert {name for name in loaded if not name.startswith(("rookery.cli", "rookery.daemon_client"))} == set()


def test_the_summaries_in_the_lazy_table_are_those_of_the_commands() -> None:
    for name, (_, text) in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == text


@requirement("house.cli.output")
@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "rookery" for path, _ in ALL])
def test_every_command_has_help_and_json_where_it_answers(path: tuple[str, ...], command: click.Command) -> None:
    # In this process, since there are many; that the program itself has help is seen elsewhere.
    done = CliRunner().invoke(cli, [*path, "--help"], prog_name="rookery", env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert command.help is not None and command.help.partition("\n")[0] in done.stdout
    # Nothing is cut, and prose fits a terminal; an example stays in one line.
    assert not [line for line in done.stdout.partition("Commands:")[2].splitlines() if line.endswith("...")]
    assert not [line for line in done.stdout.splitlines() if len(line) > 80 and not line.startswith("    ")]
    assert "Examples:" in done.stdout
    if isinstance(command, click.Group) or not path:
        return
    # What a program that is run answers is its own, and so is what an MCP server says.
    theirs = {("ws", "exec"), ("agent", "attach"), ("agent", "login"), ("bridge",)}
    answers = path not in {("completion",), ("config", "set"), *theirs}
    assert answers == any("--json" in parameter.opts for parameter in command.params)


@requirement("house.cli.output")
def test_answers_go_to_stdout_and_everything_else_to_stderr(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    path = made("fix", "--no-agent", cwd=checkout)
    (path / "new.txt").write_text("work\n")
    for words in (
        *("status", "project list", "ws list", "ws show", "ws path", "ws diff", "ws meta list", "ws meta get base"),
        *("ws trash list", "agent list", "agent show", "session list", "session toasts", "session asks"),
        *("session history", "boulder log", "boulder status", "plugin list", "plugin state", "mcp list", "mcp tools"),
        *("guard list", "config show", "config path", "config get log.level", "client print codex"),
    ):
        done = rookery(*words.split(), "--json", cwd=path)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert json.loads(done.stdout) is not None, words
    # What is done is told, and what it is called is answered.
    done = rookery("ws", "create", "other", "--no-agent", cwd=checkout)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1) and Path(done.stdout.strip()).is_dir()
    assert "other" in done.stderr


@requirement("house.cli.exit")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["stauts"], 2, "did you mean `rookery status`?"),
        (["ws", "craete"], 2, "did you mean `rookery ws create`?"),
        (["mcp", "lst"], 2, "did you mean `rookery mcp list`?"),
        (["list"], 2, "`rookery ws list`"),
        (["list"], 2, "`rookery mcp list`"),
        (["crate"], 2, "did you mean `rookery ws create`?"),
        (["ws", "purge"], 2, "did you mean `rookery ws trash purge`?"),
        (["status", "--nope"], 2, "No such option"),
        (["up", "--set", "nothing"], 2, "KEY=VALUE"),
        (["up", "--json"], 2, "--json needs -d"),
        (["up", "-d", "--set", "no.such=1"], 2, "there is no setting no.such"),
        (["up", "-d", "--set", "http.port=x"], 2, "a whole number from 0 to 65535"),
        (["up", "-d", "--set", "htpp.port=1"], 2, "did you mean http.port?"),
        (["up", "--set", "htpp.port=1"], 2, "did you mean http.port?"),
        (["up", "-d", "/no/such/folder"], 3, "/no/such/folder"),
        (["config", "get", "log.levle"], 2, "did you mean log.level?"),
        (["config", "get", "port"], 2, "did you mean http.port?"),
        (["config", "get", "nope"], 2, "there is no setting nope (see: rookery config show)"),
        (["config", "set", "log.level", "loud"], 2, "one of debug, info, warning, error"),
        (["config", "set", "limits.connections", "0"], 2, "limits.connections"),
        (["status", "--no-start"], 5, "rookery up -d"),
        (["project", "list", "--no-start"], 5, "rookery up -d"),
        (["logs"], 3, "there is no log yet"),
        (["completion", "tcsh"], 2, "tcsh"),
    ],
)
def test_what_goes_wrong_is_one_line_with_a_remedy_and_a_code(words: list[str], code: int, said: str) -> None:
    done = rookery(*words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    if "Usage:" not in done.stderr:
        lines = [line for line in done.stderr.splitlines() if line != "starting the daemon ..."]
        assert len(lines) == 1 and re.fullmatch(r'rookery: .+ \(.+\)|{"error": .+ "remedy": ".+"}}', lines[0])


@requirement("house.cli.exit")
@pytest.mark.parametrize("words", ["up -d", "up", "project add", "mcp list", "doctor", "config show", "ws show"])
def test_in_a_folder_that_was_deleted_one_is_told_so(words: str, daemon: Daemon, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'cd "{gone}" && rmdir "{gone}" && exec "{ROOKERY}" {words}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("rookery: the current folder does not exist any more (")


@requirement("house.cli.exit", "house.cli.output")
def test_with_json_an_error_is_an_object_on_stderr() -> None:
    done = rookery("status", "--json", "--no-start")
    assert done.returncode == 5
    assert done.stdout == ""
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "daemon-unreachable"
    assert error["message"] and error["remedy"]


@requirement("house.cli.exit")
def test_a_daemon_that_hangs_makes_down_time_out_with_124(daemon: Daemon) -> None:
    os.kill(daemon.pid, 19)
    try:
        # Stopped, it cannot answer; the signal that `down` falls back to waits with it.
        done = rookery("down", "--timeout", "0.5")
    finally:
        os.kill(daemon.pid, 18)
    assert done.returncode == 124
    assert "still stopping" in done.stderr
    wait_dead(daemon.pid)


@requirement("house.cli.autostart")
def test_of_many_commands_that_need_a_daemon_at_once_one_starts_it_and_all_succeed(state: Path) -> None:
    words = [str(ROOKERY), "status", "--json"]
    with ExitStack() as stack:
        asked = [stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE)) for _ in range(6)]
        answers = [json.loads(one.communicate(timeout=60)[0]) for one in asked]
    assert len({one["daemon"]["pid"] for one in answers}) == 1
    assert rookery("down").returncode == 0


@requirement("house.cli.autostart")
def test_a_command_that_needs_the_daemon_starts_it_and_says_so(state: Path) -> None:
    done = rookery("status", "--json")
    assert done.returncode == 0
    assert "starting the daemon" in done.stderr
    assert json.loads(done.stdout)["daemon"]["pid"]
    again = rookery("status", "--json")
    assert again.stderr == ""
    assert rookery("down", "--json").stdout == '{"stopped": true}\n'
    assert rookery("down", "--json").stdout == '{"stopped": false}\n'


@requirement("house.cli.output")
def test_colour_is_for_terminals_only(daemon: Daemon) -> None:
    assert "\x1b[" not in rookery("status").stdout
    assert "\x1b[" in rookery("status", env={"CLICOLOR_FORCE": "1"}).stdout
    assert "\x1b[" not in rookery("status", env={"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}).stdout
    with on_a_terminal("status") as (_, ours):
        assert b"\x1b[1mdaemon" in wait_for_line(ours, b"no projects yet")


def test_of_two_starts_at_once_each_registers_its_project(state: Path, tmp_path: Path) -> None:
    for name in ("one", "{x}"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True, timeout=30)
    with ExitStack() as stack:
        words = [[str(ROOKERY), "up", "-d", str(tmp_path / name)] for name in ("one", "{x}")]
        started = [stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE)) for argv in words]
        assert {one.wait(60) for one in started} == {0}
    listed = json.loads(rookery("project", "list", "--json").stdout)
    assert {one["name"] for one in listed} == {"one", "{x}"}
    assert rookery("down").returncode == 0


def test_a_reader_that_goes_away_is_no_error(daemon: Daemon) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            f"'{ROOKERY}' status --json | true; '{ROOKERY}' config show | head -n 1; '{ROOKERY}' doctor | true",
        ],
        # Nobody listens there.
        env=os.environ | {"npm_config_registry": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("SETTING")


@requirement("house.cli.exit")
@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"], ["config", "show"], ["status", "--json"]])
def test_what_nobody_reads_ends_with_141(words: list[str], daemon: Daemon) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([ROOKERY, *words], stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, "")


@requirement("house.cli.helpers")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_knows_the_commands(shell: str) -> None:
    done = rookery("completion", shell)
    assert done.returncode == 0
    assert "_ROOKERY_COMPLETE" in done.stdout
    words = {"_ROOKERY_COMPLETE": f"{shell}_complete", "COMP_WORDS": "rookery st"}
    words["COMP_CWORD"] = "st" if shell == "fish" else "1"
    completed = rookery(env=words)
    assert "status" in completed.stdout


def test_up_tells_which_project_the_folder_is_of_or_that_it_is_of_none(daemon: Daemon, tmp_path: Path) -> None:
    app, bare = tmp_path / "app", tmp_path / "bare"
    bare.mkdir()
    subprocess.run(["git", "init", "-q", str(app)], check=True, timeout=30)
    registered = rookery("up", "-d", cwd=app)
    (project,) = json.loads(rookery("project", "list", "--json").stdout)
    assert registered.returncode == 0
    told = registered.stderr.splitlines()
    assert told[0] == f"{app} is the project {project['id']}"
    assert told[1].startswith("the MCP server of its main checkout: http://127.0.0.1:") and len(told) == 2
    assert json.loads(rookery("up", "-d", "--json", cwd=app).stdout)["project"] == project["id"]
    none = rookery("up", "-d", cwd=bare)
    assert none.returncode == 0 and none.stderr.startswith(f"no project: {bare} ")
    assert "rookery up -d PATH" in none.stderr
    quiet = rookery("up", "-d", "--json", cwd=bare)
    assert (json.loads(quiet.stdout)["project"], quiet.stderr) == (None, "")


def test_tables_are_straight_also_with_wide_characters(daemon: Daemon, tmp_path: Path) -> None:
    for name in ("日本", "plain", "e\u0301te"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True, timeout=30)
        assert rookery("project", "add", str(tmp_path / name)).returncode == 0
    lines = rookery("project", "list").stdout.splitlines()
    begins = [line.partition("PATH" if line.startswith("PROJECT") else str(tmp_path))[0] for line in lines]
    # Two columns for each of the wide ones, none for the accent.
    assert {len(text) + text.count("日") + text.count("本") - text.count("\u0301") for text in begins} == {
        len(begins[0])
    }
    assert len(lines) == 4


def test_status_for_people_names_daemon_endpoint_and_projects(daemon: Daemon, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    assert rookery("up", "-d", str(tmp_path / "app")).returncode == 0
    shown = rookery("status").stdout
    assert f"pid {daemon.pid}" in shown
    assert daemon.runtime["url"] in shown
    assert daemon.runtime["mcp_url"] in shown
    assert str(tmp_path / "app") in shown
    assert rookery("project", "list").stdout.splitlines()[1].startswith("app-")
