"""The sandboxes of local servers: from a definition and the settings to a policy, and hints about refused accesses.

Landlock tells nobody what it has refused. A program that was refused an access usually says so, with the path.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rookery.system.causes import is_refusal
from rookery.system.confinement.kernel import find_support, require_support
from rookery.system.confinement.locations import (
    PrivateFolder,
    SandboxOptions,
    add_private_folder,
    confine_environment,
    expand_paths,
    list_private_variables,
    make_base_policy,
)
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import list_missing
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition, ServerSandbox

_PATH = re.compile(r"(?<![\w.~-])(/[^\s'\"`:,;)\]]+)")
_MAX_SHOWN_PATHS = 3
_SCRIPT_SUFFIXES = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".jar"})

DefaultSandbox = Literal["agents", "off", "workspace", "read-only"]


@dataclass(frozen=True)
class CheckoutAccess:
    """What a server may write in a checkout, without and with links, and read besides the checkout itself."""

    write: Sequence[str]
    linkless: Sequence[str]
    read: Sequence[str]


@dataclass(frozen=True)
class ConfinedServer:
    """The policy and environment of a confined server. `missing` names what the kernel cannot enforce."""

    policy: ConfinementPolicy
    environment: Mapping[str, str]
    sandbox: ServerSandbox
    missing: tuple[str, ...]
    folder: PrivateFolder


@dataclass(frozen=True)
class ServerSandboxes:
    """Makes the sandboxes of local servers."""

    state: Path
    options: SandboxOptions
    default: DefaultSandbox
    # For servers that a repository defines.
    repository_default: DefaultSandbox
    unconfined_allowed: bool
    # Returns what may be written and read in the checkout at a folder.
    find_access: Callable[[Path], CheckoutAccess]
    # Returns whether the agent of the workspace at a folder is confined. It can write what a server there executes.
    has_confined_agent: Callable[[Path], bool] = lambda folder: False

    def make(self, definition: Definition, directory: Path, environment: Mapping[str, str]) -> ConfinedServer | None:
        """Return the sandbox of a server, None if it has none. Raise RookeryError if it cannot be confined."""
        sandbox = self.find_sandbox(definition, directory)
        if sandbox.files == "off":
            return None
        try:
            require_support()
        except RookeryError:
            if self.unconfined_allowed:
                return None
            raise
        home = Path(environment.get("HOME") or Path.home())
        folder = PrivateFolder(self._folder_of(definition))
        folder.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.create()
        policy = add_private_folder(make_base_policy(home, environment, self.options), folder)
        # A server that serves several folders, or none in particular, gets none.
        base = None if definition.is_shared or directory == home or directory in home.parents else directory
        write = expand_paths(sandbox.write, home, base)
        read = expand_paths(sandbox.read, home, base)
        linkless: Sequence[str] = ()
        if base is not None:
            # The workspace as a whole, however it is spelt, is what `find_access` says: its git folder is excepted.
            whole = str(base)
            listed = write
            write = tuple(path for path in listed if os.path.normpath(path) != whole)
            writes = sandbox.files == "workspace" or len(write) < len(listed)
            if writes or sandbox.files == "read-only" or any(os.path.normpath(path) == whole for path in read):
                access = self.find_access(base)
                read = (*read, whole, *access.read)
                write = (*write, *(access.write if writes else ()))
                linkless = access.linkless if writes else ()
        policy = replace(
            policy,
            write=(*policy.write, *write),
            linkless=(*policy.linkless, *linkless),
            execute=(*policy.execute, *read, *_list_programs(definition.command)),
            network=sandbox.network,
        )
        variables = list_private_variables(environment, folder)
        return ConfinedServer(
            policy,
            confine_environment(environment, variables | definition.environment),
            sandbox,
            list_missing(find_support(), policy),
            folder,
        )

    def find_sandbox(self, definition: Definition, directory: Path) -> ServerSandbox:
        """Return the sandbox that a definition names, else that of the settings."""
        if definition.sandbox is not None:
            return definition.sandbox
        default = self.default if definition.source.place == "user" else self.repository_default
        if default != "agents":
            return ServerSandbox(files=default)
        is_beside_agent = not definition.is_shared and self.has_confined_agent(directory)
        return ServerSandbox(files="workspace" if is_beside_agent else "off")

    def _folder_of(self, definition: Definition) -> Path:
        """Return the private folder of a server: each definition has one, in all workspaces."""
        return self.state / "sandbox" / "servers" / definition.digest[:24]


def describe_sandbox(sandbox: ServerSandbox) -> str:
    """Return the entry that defines a sandbox, as JSON."""
    if sandbox.files in ("off", "workspace", "read-only"):
        return json.dumps(sandbox.files)
    return json.dumps({"read": sandbox.read, "write": sandbox.write, "network": sandbox.network}, ensure_ascii=False)


def explain_refusal(output: str, sandbox: ServerSandbox, home: Path | None = None) -> str:
    """Return what the sandbox may have refused, and the line that would allow it; empty if nothing looks like it.

    The path is what the program says, and it may say anything: the line allows reading only, and never the home folder
    or what contains it.
    """
    lines = [line for line in output.splitlines() if is_refusal(line)]
    if not lines:
        return ""
    found = {path: None for line in lines for path in _PATH.findall(line)}
    paths = [path for path in found if not path.startswith("/proc/")][:_MAX_SHOWN_PATHS]
    text = f'its sandbox, "sandbox": {describe_sandbox(sandbox)}, may have refused an access'
    if not paths:
        return f"{text}; to find which: rookery mcp debug --trace"
    text += f" to what its output names: {', '.join(paths)}"
    home = home or Path.home()
    narrow = [path for path in paths if Path(os.path.normpath(path)) not in (home, *home.parents)]
    if not narrow:
        return text
    entry = json.dumps(widen(sandbox, narrow), ensure_ascii=False)
    return f'{text}; if it should read that: "sandbox": {entry} ("write" if it also has to change it)'


def widen(sandbox: ServerSandbox, paths: Sequence[str]) -> dict[str, object]:
    """Return the entry of a sandbox that may also read `paths`."""
    read = [*sandbox.read, *(["."] if sandbox.files == "read-only" else []), *paths]
    write = [*sandbox.write, *(["."] if sandbox.files == "workspace" else [])]
    entry: dict[str, object] = {"read": read}
    return entry | ({"write": write} if write else {}) | ({} if sandbox.network else {"network": False})


def _list_programs(command: Sequence[str]) -> list[str]:
    """Return the program of a command and the script that it runs, if it is the first argument with a path."""
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    is_script = script.startswith("/") and Path(script).suffix in _SCRIPT_SUFFIXES
    return [path for path in (command[0], script if is_script else "") if path.startswith("/")]


def find_refused_calls(trace: str, *, limit: int = 20) -> list[str]:
    """Return the system calls that were refused, from the output of strace: each once, in their order."""
    found: dict[str, None] = {}
    for line in trace.splitlines():
        if match := re.match(r"(?:\d+ +)?(\w+\(.*\)) += -1 (EACCES|EPERM)\b", line):
            found[f"{match[1]}: {match[2]}"] = None
    return list(found)[:limit]
