"""Ten ports for each workspace, and reuse of those of deleted workspaces."""

from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.workspaces import ports
from tests.support.workspaces.service import make_repository, start_workspaces

pytestmark = pytest.mark.anyio


async def test_port_ranges_of_deleted_workspaces_are_reused_when_no_others_are_left(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owns = [tmp_path / f"own-{number}" for number in range(3)]
    async with start_workspaces(state) as served:
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
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.create(project, "task")
        token = await served.workspaces.token(made)
        assert REDACTOR.clean(f"a {token}") == "a [secret]"
        await served.workspaces.wait_until_prepared(made)
        await served.workspaces.delete(made, wait=True)
        assert token not in REDACTOR._secrets
