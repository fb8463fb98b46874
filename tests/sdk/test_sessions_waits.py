"""The errors of a wait without a match: a timeout, or a session that was closed."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from rookery.cli.session.common import SessionClient
from rookery.cli.session.wait import wait
from rookery.sdk.operations import Operations
from rookery.sdk.rest import RestClient
from rookery.sdk.sessions import Session
from rookery.sessions.records import SessionInfo, WaitResult
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

LATE = WaitResult(found=False, seen="no message", note="timed out after 5 s; the session: idle")
CLOSED = WaitResult(found=False, closed=True, seen="no message", note="the session was closed")


@pytest.mark.parametrize(("answer", "code", "status"), [(LATE, "timeout", 124), (CLOSED, "session-not-found", 1)])
async def test_a_session_that_is_closed_is_not_told_as_time_that_ran_out(
    answer: WaitResult, code: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*given: Any, **more: Any) -> WaitResult:
        return answer

    operations = Operations(cast(RestClient, SimpleNamespace(request=ask)))
    waits = Session(operations, cast(SessionInfo, SimpleNamespace(id="ses_1")))
    with pytest.raises(RookeryError) as caught:
        await waits.wait_for_message("never", 5)
    assert (caught.value.code, await waits.wait_for_idle(check=False)) == (code, answer)

    def told(*given: Any, **more: Any) -> str:
        return json.dumps(answer.as_dict())

    monkeypatch.setattr(SessionClient, "request_session", told)
    monkeypatch.setattr(SessionClient, "resolve_id", told)
    assert CliRunner().invoke(wait, ["ses_1", "--message", "never"]).exit_code == status
