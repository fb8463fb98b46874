"""The sign-in settings of definitions."""

from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.config.dialects import define_server
from rookery.upstreams.oauth.messages import Terms
from rookery.upstreams.oauth.terms import find_terms, parse_terms
from tests.support.requirements import requirement

URL = "https://a.example/mcp"


@requirement("hub.signin.flow")
def test_the_words_of_every_dialect_are_understood() -> None:
    said = {"clientId": "c", "clientSecret": "s", "scope": "a b", "callbackPort": 19876, "issuer": "https://i.example"}
    wanted = Terms(client_id="c", client_secret="s", scope="a b", port=19876, issuer="https://i.example")
    assert parse_terms(said) == wanted
    assert parse_terms({"client_id": "c", "redirect_uri": "http://127.0.0.1:1/x"}) == Terms(
        client_id="c", redirect="http://127.0.0.1:1/x"
    )
    assert parse_terms({"redirectPort": 5, "clientMetadataUrl": "https://a.example/c.json", "unknown": 1}) == Terms(
        port=5, document="https://a.example/c.json"
    )
    assert parse_terms({}) == Terms()


@pytest.mark.parametrize(
    "said",
    [
        {"clientId": 5},
        {"clientId": ""},
        {"clientId": "a", "client_id": "b"},
        {"clientSecret": "alone"},
        {"issuer": "https://i.example"},
        {"issuer": "https://i.example", "clientMetadataUrl": "https://a.example/c.json"},
        {"callbackPort": 0},
        {"callbackPort": 70_000},
        {"callbackPort": "80"},
        {"callbackPort": True},
        {"scope": 'a" b'},
        {"scope": " a"},
        {"redirectUri": "https://evil.example/"},
        {"clientMetadataUrl": "http://a.example/c.json"},
        {"clientMetadataUrl": "https://a.example"},
    ],
)
def test_what_does_not_fit_is_told_with_its_name_and_without_its_value(said: dict[str, Any]) -> None:
    with pytest.raises(RookeryError) as caught:
        parse_terms(said)
    assert caught.value.code == "invalid-input"
    assert '"oauth"' in caught.value.message or "redirect address" in caught.value.message
    with pytest.raises(RookeryError):
        define_server("far", {"url": URL, "oauth": said}, "test")


def test_who_has_credentials_of_its_own_or_is_told_not_to_is_not_signed_in_to() -> None:
    for entry in (
        {"url": URL, "oauth": False},
        {"url": URL, "headers": {"authorization": "Bearer x"}},
        {"url": "https://me:secret@a.example/mcp"},
        {"command": ["x"]},
    ):
        assert find_terms(define_server("far", entry, "test")) is None
    assert find_terms(define_server("far", {"url": URL, "oauth": True}, "test")) == Terms()
    assert find_terms(define_server("far", {"url": URL, "headers": {"X": "y"}}, "test")) == Terms()
