"""The errors of a failed sign-in."""

import pytest

from rookery.upstreams.oauth.flow import summarize_error

ANSWERS = [
    ('Token exchange failed (202): {"access_token": "t0ps", "token_type": "Bearer"}', "Bearer"),
    ('Token exchange failed (500): {"client_secret":"t0ps","error":"server_error"}', "server_error"),
    ("Token exchange failed (400): error=invalid_grant&refresh_token=t0ps", "invalid_grant"),
    ('Registration failed: 202 {"client_id":"me","client_secret":"t0ps' + "s" * 400, "client_id"),
    ("Invalid token response: 1 validation error for OAuthToken\n  input_value={'access_token': 't0ps'}", "OAuthToken"),
]


@pytest.mark.parametrize(("said", "told"), ANSWERS)
def test_an_answer_that_is_repeated_has_no_secret_in_it_and_still_says_what_is_wrong(said: str, told: str) -> None:
    found = summarize_error(ValueError(said))
    assert "t0ps" not in found and told in found and len(found) <= 300
