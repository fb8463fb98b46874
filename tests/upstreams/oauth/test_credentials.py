"""The token of one server while it is used."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.credentials import AuthChallenge, Credentials, GrantStore
from rookery.upstreams.oauth.messages import Grant, GrantResult, HelperRequest, Outcome, Terms
from tests.support.clock import SetClock
from tests.support.mcp.client import within_limit
from tests.support.requirements import requirement
from tests.upstreams.oauth.test_credentials_grants import FAR, GRANT

pytestmark = [pytest.mark.anyio, requirement("hub.signin.flow")]


class Renewer:
    """Does the errands of a test, when it lets them."""

    def __init__(self) -> None:
        self.errands: list[HelperRequest] = []
        self.go_on = asyncio.Event()
        self.fails: RookeryError | None = None
        self.lasts = 1000.0

    async def __call__(self, errand: HelperRequest) -> Outcome:
        self.errands.append(errand)
        await self.go_on.wait()
        if self.fails is not None:
            raise self.fails
        assert errand.grant is not None
        tokens = {"access_token": f"access-{len(self.errands)}", "refresh_token": f"refresh-{len(self.errands)}"}
        return GrantResult(replace(errand.grant, tokens=tokens, expires_at=(errand.grant.expires_at or 0) + self.lasts))


def made(
    tmp_path: Path, send: Renewer, clock: SetClock, grant: Grant = GRANT, client_id: str | None = None
) -> Credentials:
    grants = GrantStore(tmp_path / "sign-in")
    grants.put(FAR, grant)
    return Credentials(FAR, Terms(client_id=client_id), grants, send, clock)


async def test_a_token_is_renewed_before_its_time_is_over_while_calls_go_on(tmp_path: Path) -> None:
    send, clock = Renewer(), SetClock()
    credentials = made(tmp_path, send, clock, replace(GRANT, expires_at=1000))
    assert credentials.header() == "Bearer access-0123456789"
    clock.now += 799
    credentials.header()
    assert send.errands == []
    clock.now += 2
    for _ in range(3):
        assert credentials.header() == "Bearer access-0123456789"
    await asyncio.sleep(0)
    assert [(errand.mode, errand.url) for errand in send.errands] == [("refresh", FAR.url)]
    renewing = credentials.try_renew("Bearer access-0123456789", 401, "")
    send.go_on.set()
    assert await within_limit(renewing) and credentials.header() == "Bearer access-1"
    assert len(send.errands) == 1 and credentials.last_challenge is None
    assert GrantStore(tmp_path / "sign-in").get(FAR) == credentials.grant
    await credentials.close()


async def test_a_refused_token_is_renewed_once_for_all_who_were_refused(tmp_path: Path) -> None:
    send = Renewer()
    send.go_on.set()
    credentials = made(tmp_path, send, SetClock())
    old = credentials.header()
    assert await asyncio.gather(*(credentials.try_renew(old, 401, "") for _ in range(10))) == [True] * 10
    assert len(send.errands) == 1
    assert await credentials.try_renew(old, 401, "")  # its answer took long
    assert len(send.errands) == 1
    await credentials.close()


async def test_failed_renewals_are_limited_and_stop_once_the_grant_is_invalid(tmp_path: Path) -> None:
    send, clock = Renewer(), SetClock()
    send.go_on.set()
    send.fails = RookeryError("sign-in-failed", "not now")
    credentials = made(tmp_path, send, clock)
    header = credentials.header()
    for _ in range(3):
        assert not await credentials.try_renew(header, 401, "Bearer x")
    assert len(send.errands) == 1 and credentials.last_challenge == AuthChallenge(401, "Bearer x")
    clock.now += 100
    send.fails = RookeryError("needs-auth", "never again")
    assert not await credentials.try_renew(header, 401, "Bearer x")
    clock.now += 1000
    assert not await credentials.try_renew(header, 401, "Bearer x")
    assert len(send.errands) == 2
    assert credentials.grant is not None and not credentials.grant.renewable
    credentials.set_grant(GRANT)
    assert credentials.last_challenge is None
    await credentials.close()


async def test_s10_more_scopes_are_not_had_by_renewing(tmp_path: Path) -> None:
    send = Renewer()
    credentials = made(tmp_path, send, SetClock())
    assert not await credentials.try_renew(credentials.header(), 403, 'Bearer scope="more"')
    assert credentials.last_challenge == AuthChallenge(403, 'Bearer scope="more"') and send.errands == []


async def test_s9_what_another_client_got_counts_for_nothing(tmp_path: Path) -> None:
    credentials = made(tmp_path, Renewer(), SetClock(), client_id="another")
    assert credentials.header() is None and credentials.grant is None
    assert not await credentials.try_renew(None, 401, "")


async def test_who_signs_out_while_a_token_is_renewed_is_signed_out(tmp_path: Path) -> None:
    send = Renewer()
    credentials = made(tmp_path, send, SetClock())
    renewing = asyncio.ensure_future(credentials.try_renew(credentials.header(), 401, ""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    credentials.remove_grant()
    send.go_on.set()
    assert not await within_limit(renewing)
    assert credentials.header() is None and GrantStore(tmp_path / "sign-in").get(FAR) is None
    await credentials.close()
