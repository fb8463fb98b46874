"""The packages that the command of a server runs, as runners such as npx and uvx are told to find them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Literal, NamedTuple

from rookery.guard.lock.file import Ecosystem

Client = Literal["npm", "uv", "pip"]


class PackageRequest(NamedTuple):
    """A package with the version that a command asks for; an empty `spec` stands for the newest version.

    `client` is the program that the command would fetch it with.
    """

    client: Client
    name: str
    spec: str = ""

    @property
    def ecosystem(self) -> Ecosystem:
        return "npm" if self.client == "npm" else "pypi"

    @property
    def is_exact(self) -> bool:
        """Whether the command itself names one version, so that a new release changes nothing."""
        version = self.spec.removeprefix("===").removeprefix("==").removeprefix("=")
        # npm reads 1.2 as a range.
        return (_NPM_VERSION if self.ecosystem == "npm" else _PYPI_VERSION).match(version) is not None

    @property
    def text(self) -> str:
        """The request as its client reads it."""
        if self.ecosystem == "npm":
            return f"{self.name}@{self.spec}" if self.spec else self.name
        return f"{self.name}=={self.spec}" if self.spec[:1].isalnum() else f"{self.name}{self.spec}"


class _Runner(NamedTuple):
    """How a program that runs packages reads its arguments.

    `package_options` name packages instead of the first argument, `extra_options` further ones; `value_options` have
    a value that is no package.
    """

    client: Client
    package_options: frozenset[str] = frozenset()
    extra_options: frozenset[str] = frozenset()
    value_options: frozenset[str] = frozenset()


_NPM = _Runner("npm", frozenset({"-p", "--package"}), value_options=frozenset({"-c", "--call", "-w", "--workspace"}))
_UV = _Runner(
    "uv",
    frozenset({"--from"}),
    frozenset({"--with", "-w"}),
    frozenset({"-p", "--python", "--directory", "--project", "--env-file", "--color", "--cache-dir", "--prerelease"}),
)
_UV_RUN = _UV._replace(package_options=frozenset())
_PIPX = _Runner("pip", frozenset({"--spec"}), frozenset({"--with"}), frozenset({"--python", "--pip-args"}))
_RUNNERS: Mapping[tuple[str, ...], _Runner] = {
    ("npx",): _NPM,
    ("pnpx",): _NPM,
    ("bunx",): _NPM,
    ("npm", "exec"): _NPM,
    ("npm", "x"): _NPM,
    ("pnpm", "dlx"): _NPM,
    ("yarn", "dlx"): _NPM,
    ("bun", "x"): _NPM,
    ("opencode", "x"): _NPM,
    ("uvx",): _UV,
    ("uv", "tool", "run"): _UV,
    ("uv", "run"): _UV_RUN,
    ("pipx", "run"): _PIPX,
}
# With one of these the package comes from elsewhere than the registry that the client is configured for.
_REDIRECTING_OPTION = re.compile(
    r"(--registry|--userconfig|--globalconfig|--index|--default-index|--index-url|--extra-index-url|-i|-f|"
    r"--find-links|--no-index|--config-file|--index-strategy|--offline)(=|\Z)"
)
_REDIRECTING_VARIABLE = re.compile(r"(npm_config|UV|PIP|PIPX|BUN_CONFIG|YARN)_\w+\Z", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXECUTABLE_SUFFIX = re.compile(r"\.(cmd|exe|ps1)\Z", re.IGNORECASE)

_NPM_VERSION = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?\Z")
_PYPI_VERSION = re.compile(r"v?(\d+!)?\d+(\.\d+)*([-_.+]?[0-9A-Za-z]+)*\Z")
_NPM_NAME = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE)
_NPM_SPEC = re.compile(r"[A-Za-z0-9.+~^<>=|* -]*\Z")
_PYPI_NAME = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._, -]*\])?")
_PYPI_SPEC = re.compile(r"([A-Za-z0-9.+!_-]*|((===|[=<>~!]=|[<>])\s*[A-Za-z0-9.+!*_-]+\s*,?\s*)+)\Z")


def find_packages(command: Sequence[str], environment: Sequence[str] = ()) -> list[PackageRequest]:
    """Return the packages of registries that a command runs; `environment` are the variables that it sets.

    What is no package of the client's configured registry, such as a folder, an address or the package of another
    index, is left out.
    """
    if any(map(_REDIRECTING_VARIABLE.match, environment)):
        return []
    words = list(_skip_wrappers(command))
    for verb, runner in _RUNNERS.items():
        if tuple(words[: len(verb)]) == verb:
            return list(dict.fromkeys(_parse_arguments(runner, verb, words[len(verb) :])))
    return []


def _skip_wrappers(command: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command without a leading `env` or `cmd /c`; the program as its name."""
    words = list(command)
    while words:
        program = _EXECUTABLE_SUFFIX.sub("", PurePath(words[0].replace("\\", "/")).name)
        if program == "cmd" and words[1:2] and words[1].lower() == "/c":
            words = words[2:]
        elif program == "env":
            words = words[1:]
            while words and _ASSIGNMENT.match(words[0]):
                if _REDIRECTING_VARIABLE.match(words[0].partition("=")[0]):
                    return
                words = words[1:]
        else:
            yield program
            yield from words[1:]
            return


def _parse_arguments(runner: _Runner, verb: tuple[str, ...], words: Sequence[str]) -> Iterator[PackageRequest]:
    packages: list[str] = []
    extra: list[str] = []
    first: str | None = None
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--" or not word.startswith("-"):
            rest = words[position - 1 :] if word != "--" else words[position:]
            first = rest[0] if rest else None
            break
        if _REDIRECTING_OPTION.match(word):
            return
        option, equals, value = word.partition("=")
        takes_value = option in runner.package_options | runner.extra_options | runner.value_options
        if takes_value and not equals:
            value = words[position] if position < len(words) else ""
            position += 1
        if option in runner.package_options:
            packages.append(value)
        elif option in runner.extra_options:
            extra += value.split(",")
    if not packages and first is not None and verb != ("uv", "run"):
        packages = [first]
    for text in [*packages, *extra]:
        request = _parse_npm(text) if runner.client == "npm" else _parse_pypi(runner.client, text)
        if request is not None:
            yield request


def _parse_npm(text: str) -> PackageRequest | None:
    match = _NPM_NAME.match(text)
    if match is None or (match.end() != len(text) and text[match.end()] != "@"):
        return None
    spec = text[match.end() + 1 :].strip()
    if not _NPM_SPEC.match(spec):
        return None
    return PackageRequest("npm", match[0], "" if spec in ("latest", "*") else spec)


def _parse_pypi(client: Client, text: str) -> PackageRequest | None:
    match = _PYPI_NAME.match(text)
    if match is None:
        return None
    spec = text[match.end() :].strip()
    if spec.startswith("@"):
        spec = spec[1:].strip()
    elif spec and spec[0].isalnum():
        return None
    if not _PYPI_SPEC.match(spec):
        return None
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    return PackageRequest(client, name, "" if spec == "latest" else re.sub(r"\s+", "", spec))
