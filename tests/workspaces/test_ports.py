"""Ten ports for each workspace, and what is kept of workspaces that come and go."""

from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.workspaces import ports
from tests.support.workspaces.service import make_repository, serving

pytestmark = pytest.mark.anyio


async def test_ranges_of_workspaces_that_are_gone_are_given_to_others_when_there_are_no_more(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owns = [tmp_path / f"own-{number}" for number in range(3)]
    async with serving(state) as served:
        for own in owns:
            own.mkdir()
        first = await served.workspaces.ports.get(owns[0])
        second = await served.workspaces.ports.get(owns[1])
        monkeypatch.setattr(ports, "_LAST", second.stop)
        with pytest.raises(RookeryError, match="no ten ports"):
            await served.workspaces.ports.get(owns[2])
        owns[0].rmdir()
        assert await served.workspaces.ports.get(owns[2]) == first
        assert await served.workspaces.ports.get(owns[1]) == second


async def test_of_workspaces_that_are_gone_no_secret_is_kept_either(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with serving(state) as served:
        project = await served.project(app)
        made = await served.workspaces.create(project, "task")
        token = await served.workspaces.token(made)
        assert REDACTOR.clean(f"a {token}") == "a [secret]"
        await served.workspaces.wait_until_prepared(made)
        await served.workspaces.delete(made, wait=True)
        assert token not in REDACTOR._secrets
