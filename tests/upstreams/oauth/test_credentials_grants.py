"""The stored results of sign-ins."""

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.upstreams.oauth.credentials import GrantStore, SignInTarget
from rookery.upstreams.oauth.messages import Grant
from tests.support.requirements import requirement

FAR = SignInTarget("far", "https://a.example/mcp")
GRANT = Grant(
    server=FAR.url,
    issuer="https://i.example",
    client={"client_id": "c"},
    tokens={"access_token": "access-0123456789", "refresh_token": "refresh-0123456789"},
)


@requirement("hub.signin.tokens")
def test_s9_a_grant_is_for_one_server_at_one_address_and_found_again_by_nobody_else(tmp_path: Path) -> None:
    grants = GrantStore(tmp_path / "sign-in")
    assert grants.get(FAR) is None
    grants.put(FAR, GRANT)
    (file,) = (tmp_path / "sign-in").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    fresh = GrantStore(tmp_path / "sign-in")
    assert fresh.get(FAR) == GRANT
    assert fresh.get(SignInTarget("near", FAR.url)) is None
    assert fresh.get(SignInTarget("far", "https://b.example/mcp")) is None
    with pytest.raises(RookeryError, match="a different address"):
        fresh.put(SignInTarget("far", "https://b.example/mcp"), GRANT)
    # A file that was put in another one's place is not believed.
    other = GrantStore(tmp_path / "sign-in")
    other.put(SignInTarget("far", "https://b.example/mcp"), replace(GRANT, server="https://b.example/mcp"))
    moved = next(one for one in file.parent.iterdir() if one != file)
    moved.write_bytes(file.read_bytes())
    assert GrantStore(tmp_path / "sign-in").get(SignInTarget("far", "https://b.example/mcp")) is None
    fresh.remove(FAR)
    assert fresh.get(FAR) is None and not file.exists()


@requirement("hub.signin.tokens")
def test_tokens_are_struck_out_of_the_log_and_stand_in_no_text_about_them(tmp_path: Path) -> None:
    grants = GrantStore(tmp_path / "sign-in")
    grants.put(FAR, GRANT)
    assert "access-0123456789" not in REDACTOR.clean("with access-0123456789") + repr(GRANT)
    grants.put(FAR, replace(GRANT, tokens={"access_token": "access-9876543210"}))
    assert "9876543210" not in REDACTOR.clean("access-9876543210")


@pytest.mark.parametrize("what", ["open to others", "a link", "no JSON"])
def test_a_file_that_cannot_be_trusted_counts_for_nothing(what: str, tmp_path: Path) -> None:
    GrantStore(tmp_path / "sign-in").put(FAR, GRANT)
    (file,) = (tmp_path / "sign-in").iterdir()
    if what == "open to others":
        file.chmod(0o644)
    elif what == "a link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_bytes(b"{")
    assert GrantStore(tmp_path / "sign-in").get(FAR) is None
