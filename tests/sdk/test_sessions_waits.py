"""How a wait that found nothing is told to programs: time that ran out, or a session that was closed before."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from rookery.cli.session_names import Sessions
from rookery.cli.session_wait import wait
from rookery.face.line import Line
from rookery.face.session_waits import SessionWaits
from rookery.sessions.records import SessionInfo, Waited
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

LATE = Waited(found=False, seen="no message", note="not within 5 s; the session: idle")
CLOSED = Waited(found=False, closed=True, seen="no message", note="the session was closed")


@pytest.mark.parametrize(("answer", "code", "status"), [(LATE, "timeout", 124), (CLOSED, "session-not-found", 1)])
async def test_a_session_that_is_closed_is_not_told_as_time_that_ran_out(
    answer: Waited, code: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*given: Any, **more: Any) -> Waited:
        return answer

    waits = SessionWaits(cast(Line, SimpleNamespace(ask=ask)), cast(SessionInfo, SimpleNamespace(id="ses_1")))
    with pytest.raises(RookeryError) as caught:
        await waits.wait_for_message("never", 5)
    assert (caught.value.code, await waits.wait_for_idle(check=False)) == (code, answer)

    def told(*given: Any, **more: Any) -> str:
        return json.dumps(answer.as_dict())

    monkeypatch.setattr(Sessions, "ask_of", told)
    monkeypatch.setattr(Sessions, "id_of", told)
    assert CliRunner().invoke(wait, ["ses_1", "--message", "never"]).exit_code == status
