"""Settings come from layers, and the source of each value is known."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from rookery.daemon.settings import layers
from rookery.daemon.settings.layers import list_settings
from rookery.daemon.settings.schema import Settings
from rookery.system.errors import RookeryError
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.requirements import requirement


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    subprocess.run(["git", "init", "-q", str(made)], check=True, timeout=30)
    (made / ".rookery").mkdir()
    return made


def user_config(text: str) -> Path:
    path = Path.home() / ".config" / "rookery" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def shown(cwd: Path | None = None, **env: str) -> dict[str, tuple[object, str]]:
    done = rookery("config", "show", "--json", cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return {one["key"]: (one["value"], one["source"]) for one in json.loads(done.stdout)["settings"]}


@requirement("house.settings.layers")
def test_the_last_layer_that_gives_a_value_wins_and_is_named(project: Path) -> None:
    assert shown(project)["log.level"] == ("info", "default")
    user = user_config('[log]\nlevel = "warning"\nfiles = 3\n')
    assert shown(project)["log.level"] == ("warning", str(user))
    (project / ".rookery" / "config.toml").write_text('log.level = "error"\n')
    found = shown(project)
    assert found["log.level"] == ("error", str(project / ".rookery" / "config.toml"))
    assert found["log.files"] == (3, str(user))
    assert shown(project, ROOKERY_LOG_LEVEL="debug")["log.level"] == ("debug", "environment ROOKERY_LOG_LEVEL")
    layered = layers.load_layers(
        user.parent, project=project, environment={"ROOKERY_LOG_LEVEL": "debug"}, flags=[("log.level", "info")]
    )
    assert (layered.values["log.level"], layered.sources["log.level"]) == ("info", "flag")


@requirement("house.settings.layers")
def test_flags_reach_the_daemon(state: Path) -> None:
    daemon = up("--log-level", "debug", "--set", "events.history=7", env={"ROOKERY_LOG_LEVEL": "error"})
    assert any(one["level"] == "debug" for one in daemon.log())
    assert rookery("down").returncode == 0


def test_no_variable_that_rookery_itself_sets_is_taken_for_a_wrong_setting() -> None:
    source = Path(layers.__file__).parents[1]
    named = {name for path in source.rglob("*.py") for name in re.findall(r'"(ROOKERY_[A-Z_]+)"', path.read_text())}
    assert {"ROOKERY_MODEL_URL", "ROOKERY_PORTS", "ROOKERY_ATTENTION"} <= named
    layered = layers.load_layers(Path.home(), environment=dict.fromkeys(named, "1"))
    assert [problem for problem in layered.problems if "there is no setting" in problem.message] == []


@requirement("house.settings.layers")
def test_an_unknown_key_is_reported_with_the_nearest_known_one(project: Path) -> None:
    user_config("[log]\nlevl = 'debug'\n")
    done = rookery("config", "show", cwd=project, env={"ROOKERY_HTTP_PROT": "1"})
    assert done.returncode == 0
    assert "there is no setting log.levl (did you mean log.level?)" in done.stderr
    assert "there is no setting ROOKERY_HTTP_PROT (did you mean ROOKERY_HTTP_PORT?)" in done.stderr
    daemon = up()
    assert any("log.levl" in problem for problem in daemon.http("GET", "/api/status").json()["daemon"]["problems"])
    assert rookery("down").returncode == 0


def test_a_repository_cannot_open_a_door(project: Path) -> None:
    (project / ".rookery" / "config.toml").write_text('auth = "loopback"\n[http]\nport = 1\n[log]\nlevel = "debug"\n')
    daemon = up(str(project))
    assert daemon.http("GET", "/api/status", token=None).status == 401
    problems = daemon.http("GET", "/api/status").json()["daemon"]["problems"]
    assert [problem for problem in problems if "auth cannot be set by a project" in problem]
    assert [problem for problem in problems if "http.port cannot be set by a project" in problem]
    assert any(one["level"] == "debug" for one in daemon.log())
    assert rookery("down").returncode == 0


@requirement("house.auth.loopback")
def test_auth_loopback_drops_the_token_check_and_no_other(state: Path) -> None:
    daemon = up("--set", "auth=loopback")
    named = {"X-Workspace-Path": "/nowhere"}
    assert daemon.http("GET", "/mcp", token=None).status == 400
    assert daemon.http("GET", "/mcp", token=None, headers=named).status not in (401, 403)
    assert daemon.http("GET", "/mcp", token=None, headers=named | {"Host": "evil.test"}).status == 421
    assert daemon.http("GET", "/mcp", token=None, headers=named | {"Origin": "http://evil.test"}).status == 403
    assert rookery("down").returncode == 0


@pytest.mark.parametrize("text", ["[log\n", "log.level = 'loud'\n", "http.port = '7'\n", "http.port = 70000\n", "\xff"])
def test_a_broken_user_file_stops_the_start_and_is_named(state: Path, text: str) -> None:
    user = user_config("")
    user.write_bytes(text.encode("latin-1"))
    done = rookery("up", "-d")
    assert done.returncode == 1
    assert str(user) in done.stderr
    shown = rookery("config", "show")
    assert shown.returncode == 0
    assert str(user) in shown.stderr


def test_a_user_file_that_is_a_pipe_is_named_without_the_words_of_the_system(state: Path) -> None:
    user = user_config("")
    user.unlink()
    os.mkfifo(user)
    for words in (("up", "-d"), ("config", "set", "log.level", "debug")):
        done = rookery(*words)
        assert done.returncode == 1 and "Errno" not in done.stderr
        assert "cannot be read: not a regular file of at most 1000000 bytes (repair or remove it" in done.stderr


def test_a_broken_project_file_is_told_and_does_not_stop_the_start(project: Path) -> None:
    (project / ".rookery" / "config.toml").write_text("[log\n")
    daemon = up(str(project))
    assert any("cannot be read" in one for one in daemon.http("GET", "/api/status").json()["daemon"]["problems"])
    assert rookery("down").returncode == 0


def test_a_project_file_that_is_a_link_is_neither_read_nor_written(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    for target in ("/dev/zero", tmp_path / "mine"):
        (project / ".rookery" / "config.toml").unlink(missing_ok=True)
        (project / ".rookery" / "config.toml").symlink_to(target)
        assert "cannot be read" in rookery("config", "show", cwd=project).stderr
        assert rookery("config", "set", "--project", "log.level", "debug", cwd=project).returncode == 1
    assert (tmp_path / "mine").read_text() == ""


@requirement("house.cli.helpers")
def test_a_value_can_be_read_and_written_and_comments_stay(project: Path) -> None:
    user = user_config("# mine\n[log]\nfiles = 3  # three\n")
    done = rookery("config", "set", "log.level", "debug")
    assert done.returncode == 0
    assert user.read_text() == '# mine\n[log]\nfiles = 3  # three\nlevel = "debug"\n'
    assert rookery("config", "get", "log.level").stdout == "debug\n"
    assert json.loads(rookery("config", "get", "log.files", "--json").stdout) == {
        "key": "log.files",
        "value": 3,
        "source": str(user),
    }
    assert rookery("config", "set", "--project", "log.level", "error", cwd=project).returncode == 0
    assert (project / ".rookery" / "config.toml").read_text() == '[log]\nlevel = "error"\n'
    assert rookery("config", "set", "--project", "auth", "loopback", cwd=project).returncode == 2
    assert rookery("config", "set", "--project", "log.level", "error").returncode == 3
    assert rookery("config", "path", cwd=project).stdout.splitlines() == [
        str(user),
        str(project / ".rookery" / "config.toml"),
    ]


@requirement("house.settings.layers")
def test_a_table_has_names_of_the_users_choice(project: Path) -> None:
    assert shown()["sessions.agents"] == ({}, "default")
    user = user_config('[sessions.agents.claude]\nagent = "build"\nmodel = "anthropic/x"\n[sessions.agents.mine]\n')
    named = {"claude": {"agent": "build", "model": "anthropic/x"}, "mine": {"agent": "", "model": ""}}
    assert shown()["sessions.agents"] == (named, str(user))
    assert layers.load_layers(user.parent).settings().sessions.agents["claude"].model == "anthropic/x"
    given = shown(ROOKERY_SESSIONS_AGENTS='{"gpt": {"model": "openai/y"}}')["sessions.agents"]
    assert given == ({"gpt": {"agent": "", "model": "openai/y"}}, "environment ROOKERY_SESSIONS_AGENTS")
    assert rookery("config", "set", "sessions.agents", '{"gpt": {"model": "openai/z"}}').returncode == 0
    assert shown()["sessions.agents"][0] == {"gpt": {"agent": "", "model": "openai/z"}}
    for wrong in ("claude", "[1]", '{"gpt": {"modle": "x"}}', '{"gpt": 7}'):
        assert rookery("config", "set", "sessions.agents", wrong).returncode == 2
    (project / ".rookery" / "config.toml").write_text('[sessions.agents.claude]\nagent = "theirs"\n')
    assert shown(project)["sessions.agents"][1] == str(user)


def test_the_file_of_a_project_counts_from_every_folder_of_it(project: Path) -> None:
    (project / ".rookery" / "config.toml").write_text('log.level = "debug"\n')
    (project / "sub").mkdir()
    assert rookery("config", "get", "log.level", cwd=project / "sub").stdout == "debug\n"
    daemon = up(str(project / "sub"))
    assert any(one["level"] == "debug" for one in daemon.log())
    assert rookery("down").returncode == 0


def test_setting_a_value_that_a_later_layer_overrides_says_so(state: Path) -> None:
    done = rookery("config", "set", "log.level", "debug", env={"ROOKERY_LOG_LEVEL": "error"})
    assert done.returncode == 0
    assert 'environment ROOKERY_LOG_LEVEL takes precedence and sets "error"' in done.stderr


def test_a_value_is_written_also_when_the_daemon_cannot_take_it_over(daemon: Daemon) -> None:
    user = user_config("auth = 3\n")
    done = rookery("config", "set", "log.level", "debug")
    assert done.returncode == 0
    assert "could not apply it" in done.stderr
    assert 'level = "debug"' in user.read_text()


def test_a_file_that_cannot_be_read_is_not_overwritten(state: Path) -> None:
    user = user_config("[log\n")
    assert rookery("config", "set", "log.level", "debug").returncode == 1
    assert user.read_text() == "[log\n"


def test_a_running_daemon_says_what_it_took_over_and_what_waits(daemon: Daemon) -> None:
    assert "has applied it" in rookery("config", "set", "log.level", "debug").stderr
    assert "next start" in rookery("config", "set", "events.history", "5").stderr
    assert "has applied it" not in rookery("config", "set", "log.level", "debug").stderr


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        *((value, True) for value in ("", "workspace", "workspace,project", " session , hub,", ",hub")),
        *((value, False) for value in ("admin", "workspace,admin", "workspaces", "workspace session", "hub;project")),
    ],
)
def test_agents_get_known_toolsets_and_never_the_one_for_the_owner(value: str, is_valid: bool) -> None:
    setting = list_settings()["agents.toolsets"]
    if is_valid:
        assert layers.parse_value(setting, value, textual=True) == value
        return
    with pytest.raises(RookeryError) as caught:
        layers.parse_value(setting, value, textual=True)
    assert "workspace,project,session,hub" in caught.value.remedy


def test_every_setting_has_a_text_and_a_variable_of_its_own() -> None:
    known = list_settings()
    assert all(one.text.endswith(".") for one in known.values())
    assert len({one.variable for one in known.values()}) == len(known)
    assert layers.load_layers(Path("/nowhere")).settings() == Settings()


def test_everything_fatal_is_named_at_once() -> None:
    layered = layers.load_layers(Path("/nowhere"), flags=[("http.port", "x"), ("log.level", "y")])
    with pytest.raises(RookeryError) as caught:
        layered.settings()
    assert "http.port" in caught.value.message and "log.level" in caught.value.message
