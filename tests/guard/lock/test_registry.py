"""What registries tell, asked with the real npm, uv and pip, at registries on loopback."""

import base64
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rookery.agents.opencode.install import find_npm
from rookery.guard.lock.file import LockedPackage
from rookery.guard.lock.packages import PackageRequest
from rookery.guard.lock.registry import PackageRegistries, ResolvedPackage
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.npm.registry import npm_registry
from tests.support.package_index import package_index

pytestmark = pytest.mark.anyio

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


async def resolve(environment: Mapping[str, str], *requests: PackageRequest) -> list[ResolvedPackage]:
    env = {"HOME": os.environ["HOME"], "PATH": PATH, **environment}
    registries = PackageRegistries(Spawner(new_id()), env, find_npm)
    return list((await registries.resolve(requests)).values())


async def test_npm_tells_version_and_integrity_of_the_configured_registry() -> None:
    with npm_registry() as registry:
        registry.publish("@x/server", "1.2.3", {})
        registry.publish("plain", "0.1.0", {})
        env = {"npm_config_registry": registry.url}
        scoped, plain = PackageRequest("npm", "@x/server", "1.2.3"), PackageRequest("npm", "plain")
        found = await resolve(env, scoped, plain, plain)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(registry.packages["plain"][1]).digest()).decode()
        assert [each.problem for each in found] == ["", ""]
        assert found[0].package is not None and found[0].package.version == "1.2.3"
        assert found[1].package == LockedPackage("npm", "plain", "0.1.0", (integrity,))
        # Nothing of a package is fetched, and so nothing of it can run.
        assert registry.tarballs() == []


async def test_a_package_that_npm_does_not_know_is_a_problem_without_an_address() -> None:
    with npm_registry() as registry:
        (found,) = await resolve({"npm_config_registry": registry.url}, PackageRequest("npm", "nowhere", "1.0.0"))
    assert found.package is None and "npm failed" in found.problem
    assert registry.url not in found.problem


async def test_a_missing_client_is_a_problem() -> None:
    found = await resolve({"PATH": "/nowhere"}, PackageRequest("uv", "x"), PackageRequest("pip", "x"))
    assert [each.problem for each in found] == [
        "uv was not found, so PyPI cannot be asked",
        "pip was not found, so PyPI cannot be asked",
    ]


async def test_uv_tells_the_hashes_of_all_files_of_a_version() -> None:
    with package_index() as index:
        one = index.publish("some-server", "1.0")
        other = index.publish("some-server", "1.0", "cp39-cp39-linux_s390x")
        index.publish("some-server", "0.9")
        (found,) = await resolve({"UV_DEFAULT_INDEX": index.url}, PackageRequest("uv", "some-server"))
    assert found.problem == ""
    hashes = tuple(sorted(f"sha256:{each}" for each in (one, other)))
    assert found.package == LockedPackage("pypi", "some-server", "1.0", hashes)


async def test_pip_tells_the_hash_of_a_wheel_that_fits_every_machine() -> None:
    with package_index() as index:
        digest = index.publish("some-server", "1.0")
        env = {"PIP_INDEX_URL": index.url}
        (found,) = await resolve(env, PackageRequest("pip", "some-server", "==1.0"))
    assert found.problem == ""
    assert found.package == LockedPackage("pypi", "some-server", "1.0", (f"sha256:{digest}",))


async def test_c11_no_file_of_the_current_folder_configures_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with npm_registry() as theirs, npm_registry() as own:
        own.publish("plain", "0.1.0", {})
        theirs.publish("plain", "6.6.6", {})
        (tmp_path / ".npmrc").write_text(f"registry={theirs.url}\n")
        monkeypatch.chdir(tmp_path)
        (found,) = await resolve({"npm_config_registry": own.url}, PackageRequest("npm", "plain"))
        assert found.package is not None and found.package.version == "0.1.0"
        assert theirs.asked == []
