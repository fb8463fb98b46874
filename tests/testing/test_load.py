"""Reading a script from TOML or JSON, and the position of errors in it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.testing.load import load_script, parse_script
from rookery.testing.script import Call, Regex
from tests.support.requirements import requirement

FULL = """
[[conversation]]
name = "login"
when = "Fix the login"

[[conversation.turn]]
[[conversation.turn.step]]
say = "I look."
call = "bash"
with = { command = "ls" }
[[conversation.turn.step]]
parallel = [{ call = "read", with = { filePath = "a" } }, { call = "read", with = { filePath = "b" } }]
[[conversation.turn.step]]
say = "Done."
expect = ["a", "b"]

[[conversation]]
session = 2
[[conversation.turn]]
when = { regex = "^[Hh]i" }
step = [{ say = "Hello." }]
"""


def refusal(data: Any) -> RookeryError:
    with pytest.raises(RookeryError) as caught:
        parse_script(data, "a.toml")
    return caught.value


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_toml_and_json_say_the_same(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "s.toml").write_text(FULL)
    (tmp_path / "s.json").write_text(json.dumps(tomllib.loads(FULL)))
    script = load_script(tmp_path / f"s.{suffix}")
    assert script.count() == {"conversations": 2, "turns": 2, "steps": 4}
    first, second = script.conversation
    assert (first.name, first.when, second.session) == ("login", "Fix the login", 2)
    assert first.turn[0].step[1].calls[1] == Call("read", {"filePath": "b"})
    assert first.turn[0].step[2].expected == ("a", "b")
    assert second.turn[0].when == Regex("^[Hh]i")


def test_turns_or_steps_on_top_are_a_conversation_for_every_session() -> None:
    steps = {"step": [{"say": "Hello."}]}
    wanted = parse_script({"conversation": [{"turn": [steps]}]})
    assert parse_script({"turn": [steps]}) == wanted
    assert parse_script(steps) == wanted
    assert wanted.conversation[0].is_default


@requirement("kit.model.face")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"step": [{"sya": "x"}]}, "a.toml, conversation 1, turn 1, step 1: object contains unknown field `sya`"),
        ({"turn": [{"step": [{"say": 3}]}]}, "a.toml, conversation 1, turn 1, step 1, say: expected `str"),
        (
            {"conversation": [{"turn": [{"step": [{"say": "a"}]}, {"step": [{"say": "a"}, {"say": "b"}]}]}]},
            "a.toml, conversation 1, turn 2: step 2 can never be played",
        ),
        ({}, "a.toml: object missing required field `conversation`"),
        ([], "a.toml: expected `object`"),
        ({"step": []}, "a.toml, conversation 1, turn 1, step: expected `array` of length >= 1"),
        ({"step": [{"parallel": [{"call": "x"}, {"wiht": 1}]}]}, "step 1, parallel 2: object"),
    ],
)
def test_an_error_names_the_file_and_the_place(data: Any, told: str) -> None:
    error = refusal(data)
    assert error.message.startswith(told) or told in error.message
    assert error.code == "invalid-input"
    assert "scripted-model.md" in error.remedy


@pytest.mark.parametrize(
    ("name", "content", "code", "told"),
    [
        ("s.toml", b"step = [", "invalid-input", "is not TOML: "),
        ("s.json", b'{"step": [}', "invalid-input", "line 1 column 11"),
        ("s.toml", b"\xff", "invalid-input", "is not UTF-8"),
        ("none.toml", None, "script-not-found", "there is no script"),
        (".", None, "invalid-input", "cannot be read"),
    ],
)
def test_a_file_that_is_no_script_is_refused(
    tmp_path: Path, name: str, content: bytes | None, code: str, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RookeryError) as caught:
        load_script(tmp_path / name)
    assert caught.value.code == code
    assert told in caught.value.message
