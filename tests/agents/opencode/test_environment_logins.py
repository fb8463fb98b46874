"""Model providers that can be used are found in files and variables, as OpenCode itself finds them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.environment import ProviderLogin, find_logins, may_have_provider
from tests.support.agents.launch import read_jsonc


def found(home: Path, **environment: str) -> list[ProviderLogin]:
    return find_logins({"HOME": str(home), **environment}, read_jsonc)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_nobody_is_signed_in_where_there_is_nothing_or_nothing_that_can_be_read(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    write(tmp_path / ".local/share/opencode/auth.json", "{broken")
    write(tmp_path / ".config/opencode/opencode.json", "[]")
    write(tmp_path / ".cache/opencode/models.json", {"odd": {"env": 3}, "odder": []})
    assert found(tmp_path, OPENCODE_CONFIG="/nowhere", OPENCODE_CONFIG_CONTENT="also broken") == []


def test_logins_keys_and_configs_count_and_no_key_is_told(tmp_path: Path) -> None:
    write(tmp_path / ".local/share/opencode/auth.json", {"anthropic": {"type": "api", "key": "secret"}})
    local: dict[str, Any] = {
        "provider": {"local": {"options": {"baseURL": "http://127.0.0.1:1"}}, "openai": {"models": {}}}
    }
    write(tmp_path / ".config/opencode/opencode.jsonc", f"// mine\n{json.dumps(local)}")
    told = found(tmp_path, MISTRAL_API_KEY="secret", ANTHROPIC_API_KEY="secret", GROQ_API_KEY="")
    assert told == [
        ProviderLogin("anthropic", "signed in"),
        ProviderLogin("mistral", "MISTRAL_API_KEY"),
        ProviderLogin("local", "opencode.jsonc"),
    ]


def test_folders_and_contents_may_be_given_by_variables(tmp_path: Path) -> None:
    write(tmp_path / "data/opencode/auth.json", {"openai": {"type": "oauth"}})
    write(tmp_path / "mine.json", {"provider": {"one": {"options": {"apiKey": "secret"}}}})
    inline = json.dumps({"provider": {"two": {"options": {"apiKey": "secret"}}}})
    told = found(
        tmp_path,
        XDG_DATA_HOME=str(tmp_path / "data"),
        OPENCODE_CONFIG=str(tmp_path / "mine.json"),
        OPENCODE_CONFIG_CONTENT=inline,
    )
    assert told == [
        ProviderLogin("openai", "signed in"),
        ProviderLogin("one", "mine.json"),
        ProviderLogin("two", "OPENCODE_CONFIG_CONTENT"),
    ]
    given = json.dumps({"google": {"type": "api", "key": "secret"}})
    assert found(tmp_path, XDG_DATA_HOME=str(tmp_path / "data"), OPENCODE_AUTH_CONTENT=given) == [
        ProviderLogin("google", "signed in")
    ]


def test_the_variables_are_those_of_opencodes_own_list_where_it_has_one(tmp_path: Path) -> None:
    write(tmp_path / ".cache/opencode/models.json", {"rare": {"env": ["RARE_KEY"]}})
    assert found(tmp_path, RARE_KEY="secret", MISTRAL_API_KEY="secret") == [ProviderLogin("rare", "RARE_KEY")]


def may_have(home: Path, **environment: str) -> bool:
    return may_have_provider({"HOME": str(home), **environment}, home / "workspace", read_jsonc)


def test_a_home_without_a_login_a_key_or_a_config_of_providers_has_no_provider(tmp_path: Path) -> None:
    assert not may_have(tmp_path)
    write(tmp_path / ".config/opencode/opencode.json", {"username": "zed"})
    assert not may_have(tmp_path, SHELL="/bin/sh", SSH_AUTH_SOCK="/run/ssh", SOME_API_KEY="", ROOKERY_TOKEN="ours")


@pytest.mark.parametrize("name", ["SOME_API_KEY", "GITHUB_TOKEN", "AWS_REGION", "GOOGLE_CLOUD_PROJECT"])
def test_a_variable_that_looks_like_a_key_may_belong_to_an_unknown_provider(tmp_path: Path, name: str) -> None:
    assert may_have(tmp_path, **{name: "x"})


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (".local/share/opencode/auth.json", {"far": {"type": "api", "key": "secret"}}),
        (".config/opencode/opencode.json", {"provider": {"local": {"models": {"a": {"name": "b"}}}}}),
        (".config/opencode/opencode.json", {"enabled_providers": ["far"]}),
        (".config/opencode/opencode.jsonc", {"disabled_providers": ["opencode"]}),
        ("workspace/opencode.json", {"model": "far/away"}),
        ("workspace/.opencode/opencode.json", {"model": "far/away"}),
    ],
)
def test_logins_configs_of_providers_and_those_of_the_repository_may_bring_one(
    tmp_path: Path, file: str, content: Any
) -> None:
    write(tmp_path / file, content)
    assert may_have(tmp_path)
