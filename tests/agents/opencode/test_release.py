"""The OpenCode package for each kind of machine."""

import pytest

from rookery.agents.opencode.release import (
    PINNED_VERSION,
    RIPGREP_PACKAGE_VERSION,
    Machine,
    detect_machine,
    find_release,
    require_supported,
)
from rookery.system.errors import RookeryError
from tests.support.opencode.home import OPENCODE_VERSION
from tests.support.opencode.process import RIPGREP_VERSION, installed
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    ("machine", "package"),
    [
        (Machine("linux", "x64"), "opencode-linux-x64"),
        (Machine("linux", "x64", modern=False), "opencode-linux-x64-baseline"),
        (Machine("linux", "x64", musl=True), "opencode-linux-x64-musl"),
        (Machine("linux", "x64", musl=True, modern=False), "opencode-linux-x64-baseline-musl"),
        (Machine("linux", "arm64", modern=False), "opencode-linux-arm64"),
        (Machine("darwin", "arm64"), "opencode-darwin-arm64"),
    ],
)
def test_each_machine_has_a_package_of_its_own(machine: Machine, package: str) -> None:
    release = find_release(PINNED_VERSION, machine)
    name = f"{machine.system}-{machine.processor}"
    assert release.packages == {package: PINNED_VERSION, f"@vscode/ripgrep-{name}": RIPGREP_PACKAGE_VERSION}


def test_a_machine_without_packages_is_told_to_bring_its_own() -> None:
    with pytest.raises(RookeryError, match="no OpenCode package for linux on riscv64") as caught:
        find_release(PINNED_VERSION, Machine("linux", "riscv64"))
    assert 'agents.version = "path"' in caught.value.remedy


@pytest.mark.parametrize("version", ["1.18.18", "1.18.33", "1.18.34", "1.18.100", "1.18.40-beta.1"])
def test_f07_versions_within_the_range_are_taken(version: str) -> None:
    require_supported(version)
    assert find_release(version, Machine("linux", "x64")).version == version


@pytest.mark.parametrize("version", ["1.18.17", "1.17.99", "1.19.0", "2.0.0", "0.9.1"])
def test_f07_a_version_outside_the_range_is_refused_with_the_range(version: str) -> None:
    with pytest.raises(RookeryError, match=r"1\.18\.18 or later, below 1\.19") as caught:
        require_supported(version)
    assert caught.value.code == "agent-unavailable"
    assert PINNED_VERSION in caught.value.remedy


@pytest.mark.parametrize("version", ["", "latest", "1.18", "1.18.33; rm -rf /", "../1.18.33", "1.18.33\n"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(RookeryError, match="is not a version of OpenCode"):
        require_supported(version)


@requirement("agent.install.npm")
def test_the_pinned_packages_are_those_that_the_real_opencode_comes_in() -> None:
    real = installed()
    release = find_release(PINNED_VERSION, detect_machine())
    assert (PINNED_VERSION, RIPGREP_PACKAGE_VERSION) == (OPENCODE_VERSION, RIPGREP_VERSION)
    root = real.opencode.parents[3]
    assert (release.opencode(root), release.ripgrep(root)) == (real.opencode, real.ripgrep)
    assert release.opencode(root).is_file()
    assert release.ripgrep(root).is_file()
