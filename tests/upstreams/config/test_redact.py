"""A definition as it is shown: as written, without secrets."""

from typing import Any

import msgspec
import pytest

from rookery.upstreams.config.dialects import define_server
from rookery.upstreams.config.redact import build_redactor, redact_definition


def written(**entry: Any) -> Any:
    return redact_definition(define_server("x", entry, "here"))["written"]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["run", "--port", "80", "file.txt"], ["run", "--port", "80", "file.txt"]),
        (["run", "--token", "abc"], ["run", "--token", "(hidden)"]),
        (["run", "--api-key=abc", "-k"], ["run", "--api-key=(hidden)", "-k"]),
        (["run", "PASSWORD=abc"], ["run", "PASSWORD=(hidden)"]),
        (["run", "--token", "{env:T}", "--key=${K:-none}"], ["run", "--token", "{env:T}", "--key=${K:-none}"]),
        (["run", "--token", "--verbose"], ["run", "--token", "--verbose"]),
        (["run", "https://me:abc@host/x?a=1&token=abc"], ["run", "https://(hidden)@host/x?a=1&token=(hidden)"]),
        (["run", "postgres://db/x"], ["run", "postgres://db/x"]),
        (["run", "http://[broken"], ["run", "http://[broken"]),
        (["run", "--header", "Authorization: Bearer abc"], ["run", "--header", "Authorization: (hidden)"]),
        (["run", "--header=X-Api-Key: abc"], ["run", "--header=X-Api-Key: (hidden)"]),
        (["run", "--header", "Authorization: Bearer ${T}"], ["run", "--header", "Authorization: Bearer ${T}"]),
        (["run", "ghp_0123456789abcdef"], ["run", "(hidden)"]),
        (["run", "sk-short"], ["run", "sk-short"]),
    ],
)
def test_words_of_a_command_that_look_like_secrets_are_hidden(given: list[str], seen: list[str]) -> None:
    assert written(command=given) == {"command": seen}


def test_an_address_keeps_all_that_is_no_secret() -> None:
    assert written(url="https://host:8000/a%20b/?x=%2F&y")["url"] == "https://host:8000/a%20b/?x=%2F&y"
    assert written(url="https://host/?api_key={env:KEY}")["url"] == "https://host/?api_key={env:KEY}"


def test_other_options_are_shown_without_texts_under_names_of_secrets() -> None:
    definition = define_server("x", {"command": ["x"]}, "here")
    entry = {
        "command": ["x"],
        "extra": {"apiKey": "abc", "list": ["a"], "token": ["abc"], "key": "{env:K}"},
        "timeout": 5,
    }
    shown = redact_definition(msgspec.structs.replace(definition, written=entry))["written"]
    assert shown["extra"] == {"apiKey": "(hidden)", "list": ["a"], "token": ["(hidden)"], "key": "{env:K}"}
    assert shown["timeout"] == 5


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("plain", "(hidden)"),
        ("{env:X}", "{env:X}"),
        ("Bearer {env:X}", "Bearer {env:X}"),
        ("Bearer ${X}", "Bearer ${X}"),
        ("abc{env:X}", "(hidden)"),
        ("{}", "(hidden)"),
        ("", "(hidden)"),
    ],
)
def test_a_value_is_shown_only_if_it_says_no_more_than_where_the_secret_is(value: str, seen: str) -> None:
    assert written(url="http://host/", headers={"H": value})["headers"] == {"H": seen}
    assert written(command=["x"], env={"V": value})["env"] == {"V": seen}


def test_secrets_are_redacted_from_a_servers_output_even_without_the_scheme() -> None:
    made = build_redactor(define_server("x", {"url": "http://h/", "headers": {"A": "Bearer 0123456789abcdef"}}, "here"))
    assert made.clean("got 0123456789abcdef, thanks") == "got [secret], thanks"


def test_the_password_in_a_url_is_redacted_as_written_and_decoded() -> None:
    made = build_redactor(define_server("x", {"url": "https://me:p%40ssw0rd-1@host/mcp"}, "here"))
    assert made.clean("p%40ssw0rd-1 is p@ssw0rd-1") == "[secret] is [secret]"
    assert made.clean("got Basic bWU6cEBzc3cwcmQtMQ==") == "got Basic [secret]"
