"""Which scopes are requested."""

import json

import pytest

from rookery.upstreams.oauth.metadata import filter_scopes, remove_scopes, remove_wildcard_scopes, set_challenge_scope

WHERE = 'resource_metadata="https://a.example/x"'


@pytest.mark.parametrize(
    ("header", "configured", "up", "sent"),
    [
        ("", None, False, ""),
        (f"Bearer {WHERE}", None, False, f"Bearer {WHERE}"),
        (f'Bearer scope="a b", {WHERE}', None, False, f'Bearer scope="a b", {WHERE}'),
        (f"Bearer {WHERE}, scope=a", None, False, f'Bearer scope="a", {WHERE}'),
        (f'Bearer {WHERE}, scope="a * b:* c"', None, False, f'Bearer scope="a c", {WHERE}'),
        ('Bearer scope="*"', None, False, "Bearer"),
        (f'Bearer {WHERE}, scope="a"', "mine", False, f'Bearer scope="mine", {WHERE}'),
        ("", "mine", False, 'Bearer scope="mine"'),
        ('Bearer error="insufficient_scope", scope="b"', "a", True, 'Bearer scope="a b", error="insufficient_scope"'),
    ],
)
def test_s10_what_the_server_asks_for_is_asked_for_and_no_wildcard(
    header: str, configured: str | None, up: bool, sent: str
) -> None:
    assert set_challenge_scope(header, configured, stepping_up=up) == sent


def test_s10_wildcard_scopes_are_removed_and_an_issuers_list_of_scopes_is_dropped() -> None:
    assert filter_scopes('read write * admin:* "quoted"') == "read write"
    said = {"resource": "https://a.example", "scopes_supported": ["read", "*", "all:*", 5]}
    assert json.loads(remove_wildcard_scopes(json.dumps(said).encode()))["scopes_supported"] == ["read"]
    assert json.loads(remove_wildcard_scopes(b'{"scopes_supported": ["*"]}'))["scopes_supported"] is None
    assert json.loads(remove_scopes(b'{"issuer": "https://a.example", "scopes_supported": ["everything"]}')) == {
        "issuer": "https://a.example"
    }
    for nothing in (b"", b"[]", b"{", b'{"scopes_supported": "x"}'):
        assert remove_wildcard_scopes(nothing) == nothing
        assert nothing == b'{"scopes_supported": "x"}' or remove_scopes(nothing) == nothing
