"""Each agent has one port, the same at every start."""

import socket
from pathlib import Path

import pytest

from rookery.agents.opencode.ports import AgentPorts, is_port_taken
from rookery.system.errors import RookeryError
from rookery.system.fs.paths import store_file
from tests.support.store import opened

pytestmark = pytest.mark.anyio


def own(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_a_workspace_keeps_its_port_and_shares_it_with_none(state: Path, tmp_path: Path) -> None:
    one, two = own(tmp_path / "one"), own(tmp_path / "two")
    async with opened(store_file(state)) as store:
        first, second = await AgentPorts(store).get_or_assign(one), await AgentPorts(store).get_or_assign(two)
        assert first != second
    async with opened(store_file(state)) as store:
        ports = AgentPorts(store)
        assert [await ports.get_or_assign(one), await ports.get_or_assign(two)] == [first, second]


async def test_the_port_that_it_fell_back_on_is_the_one_that_it_keeps(state: Path, tmp_path: Path) -> None:
    one = own(tmp_path / "one")
    async with opened(store_file(state)) as store:
        ports = AgentPorts(store)
        before = await ports.get_or_assign(one)
        others = await ports.find_free()
        assert len(set(others) - {before}) == 3
        await ports.assign(one, others[0])
        assert await ports.get_or_assign(one) == others[0]


async def test_a_port_is_free_again_when_its_workspace_is_gone(state: Path, tmp_path: Path) -> None:
    one, two = own(tmp_path / "one"), own(tmp_path / "two")
    async with opened(store_file(state)) as store:
        ports = AgentPorts(store)
        first = await ports.get_or_assign(one)
        kept = await ports.get_or_assign(two)
        one.rmdir()
        await ports.release_deleted()
        assert first in await ports.find_free(1000)
        assert await ports.get_or_assign(two) == kept


async def test_rookerys_with_other_state_folders_give_out_other_ports(tmp_path: Path) -> None:
    found: set[int] = set()
    for name in ("one", "two", "three", "four"):
        async with opened(store_file(own(tmp_path / name))) as store:
            found |= set(await AgentPorts(store).find_free(1))
    assert len(found) > 1


async def test_d15_a_port_that_something_listens_on_is_not_given(state: Path, tmp_path: Path) -> None:
    async with opened(store_file(state)) as store:
        ports = AgentPorts(store)
        (next_free,) = await ports.find_free(1)
        with socket.create_server(("127.0.0.1", next_free)):
            assert is_port_taken(next_free)
            assert await ports.get_or_assign(own(tmp_path / "one")) != next_free
        assert not is_port_taken(next_free)


def _is_free(port: int) -> bool:
    """Whatever else runs on this machine."""
    return False


async def test_when_all_ports_are_given_those_of_workspaces_that_are_gone_are_given_again(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.agents.opencode.ports._FIRST_PORT", 14_001)
    monkeypatch.setattr("rookery.agents.opencode.ports._LAST_PORT", 14_003)
    monkeypatch.setattr("rookery.agents.opencode.ports.is_port_taken", _is_free)
    async with opened(store_file(state)) as store:
        ports = AgentPorts(store)
        made = [own(tmp_path / str(number)) for number in range(3)]
        given = [await ports.get_or_assign(one) for one in made]
        assert sorted(given) == [14_001, 14_002, 14_003]
        with pytest.raises(RookeryError, match="no port from 14001 to 14003 is free"):
            await ports.get_or_assign(own(tmp_path / "more"))
        made[1].rmdir()
        assert await ports.get_or_assign(tmp_path / "more") == given[1]
