"""Which model providers can be asked is told from files and variables, as OpenCode itself would find them."""

import json
from pathlib import Path
from typing import Any

from rookery.agents.logins import Login, logins
from tests.support.agents import read_jsonc


def found(home: Path, **environment: str) -> list[Login]:
    return logins({"HOME": str(home), **environment}, read_jsonc)


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
        Login("anthropic", "signed in"),
        Login("mistral", "MISTRAL_API_KEY"),
        Login("local", "opencode.jsonc"),
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
        Login("openai", "signed in"),
        Login("one", "mine.json"),
        Login("two", "OPENCODE_CONFIG_CONTENT"),
    ]
    given = json.dumps({"google": {"type": "api", "key": "secret"}})
    assert found(tmp_path, XDG_DATA_HOME=str(tmp_path / "data"), OPENCODE_AUTH_CONTENT=given) == [
        Login("google", "signed in")
    ]


def test_the_variables_are_those_of_opencodes_own_list_where_it_has_one(tmp_path: Path) -> None:
    write(tmp_path / ".cache/opencode/models.json", {"rare": {"env": ["RARE_KEY"]}})
    assert found(tmp_path, RARE_KEY="secret", MISTRAL_API_KEY="secret") == [Login("rare", "RARE_KEY")]
