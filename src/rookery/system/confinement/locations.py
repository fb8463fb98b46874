"""Where programs, their libraries and their caches are: what every confined program needs besides its own folders.

Caches are private to what is confined. A shared one could hand code to programs that are not confined.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import rookery
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.fs.paths import ensure_private_folder

# Read and executed.
SYSTEM_FOLDERS = (
    *("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys"),
    *("/nix", "/gnu/store", "/snap", "/run/current-system", "/home/linuxbrew/.linuxbrew"),
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/var/lib/ca-certificates"),
)
# In the home folder, read and executed: language toolchains and programs.
TOOLCHAINS = (
    *("bin", ".local/bin", ".local/lib", ".local/pipx", ".asdf", ".bun/bin", ".cargo/bin", ".deno"),
    *(".fnm", ".ghcup", ".goenv", ".jenv", ".juliaup", ".linuxbrew", ".mise", ".nodenv", ".npm-global", ".nvm"),
    *(".opam", ".opencode", ".proto", ".pyenv", ".rbenv", ".rustup", ".rvm", ".sdkman", ".volta", "go/bin"),
    *("anaconda3", "miniconda3", "miniforge3", ".local/share/fnm", ".local/share/mise", ".local/share/pipx"),
    *(".local/share/pnpm", ".local/share/uv/python", ".local/share/uv/tools"),
    *(".cache/ms-playwright", ".cache/puppeteer"),
    # Not all of this folder: it has private keys too.
    *(".dotnet/dotnet", ".dotnet/host", ".dotnet/packs", ".dotnet/sdk", ".dotnet/sdk-manifests", ".dotnet/shared"),
    *(".dotnet/templates", ".dotnet/tools"),
)
# Folders of toolchains, by their names, and the variables that name others.
_TOOLCHAIN_NAMES = frozenset(name for name in TOOLCHAINS if name.startswith(".") and "/" not in name)
_TOOLCHAIN_VARIABLES = (
    *("ASDF_DIR", "ASDF_DATA_DIR", "CONDA_PREFIX", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "RBENV_ROOT"),
    *("RUSTUP_HOME", "VIRTUAL_ENV", "VOLTA_HOME"),
)
# In the home folder, read: what git and editors are configured with. Files with logins are not among them.
CONFIG_PATHS = (
    *(".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes"),
    *(".gitignore", ".gitignore_global", ".editorconfig", ".terminfo"),
)
# The same for agents. Keys that the user has written into the config of OpenCode are read with it.
AGENT_CONFIG_PATHS = (".config/opencode", ".opencode", ".agents", ".claude/CLAUDE.md", ".claude/skills")
# Not the terminals in /dev/pts: a program could read what the user types there.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
# Semaphores of Python and memory of browsers. Their names are random, and cannot be listed.
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder itself

# The variables that lead programs to a private folder, and the path in it.
_PRIVATE_FOLDERS = {
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "npm_config_cache": "cache/npm",
    "YARN_CACHE_FOLDER": "cache/yarn",
    "YARN_GLOBAL_FOLDER": "cache/yarn-berry",
    "BUN_INSTALL_CACHE_DIR": "cache/bun",
    "CARGO_HOME": "cache/cargo",
    "GOCACHE": "cache/go-build",
    "GOMODCACHE": "cache/go-mod",
    "GRADLE_USER_HOME": "cache/gradle",
    "NUGET_PACKAGES": "cache/nuget",
    "COMPOSER_HOME": "cache/composer",
    "BUNDLE_USER_HOME": "cache/bundle",
    "PIP_CACHE_DIR": "cache/pip",
    "UV_CACHE_DIR": "cache/uv",
}
# They name sockets, or folders of sockets, that a confined program cannot reach. Many programs work without them.
REMOVED_VARIABLES = frozenset(
    {
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR"),
        *("TMUX", "TMUX_PANE", "DOCKER_HOST", "GNOME_KEYRING_CONTROL", "WAYLAND_DISPLAY"),
    }
)
# Packing and pruning write to the common git folder, which a confined git may not.
_GIT_SETTINGS = {"gc.auto": "0", "maintenance.auto": "false"}


@dataclass(frozen=True)
class SandboxOptions:
    """The user's additions to every sandbox: paths to read (and execute) and to write, and Unix sockets."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    unix_sockets: bool = False


@dataclass(frozen=True)
class PrivateFolder:
    """The folder of a confined program for caches, temporary files and data."""

    path: Path

    @property
    def writable(self) -> tuple[str, ...]:
        return tuple(str(self.path / name) for name in ("tmp", "cache", "data", "state"))

    def create(self) -> None:
        """Create the folder. What a confined program can replace in it is never followed."""
        ensure_private_folder(self.path)
        for name in self.writable:
            Path(name).mkdir(mode=0o700, exist_ok=True)


def make_base_policy(home: Path, environment: Mapping[str, str], options: SandboxOptions) -> ConfinementPolicy:
    """Return the policy for programs that need nothing but the system, toolchains and what the user has added."""
    programs = [Path(folder) for folder in environment.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    chosen = [environment.get(name, "") for name in _TOOLCHAIN_VARIABLES]
    # A toolchain in the home folder of another user, or of a container's image.
    chosen += [str(parent) for folder in programs for parent in folder.parents if parent.name in _TOOLCHAIN_NAMES]
    on_path = [str(folder) for folder in programs if folder not in (home, *home.parents)]
    ours = (sys.prefix, sys.base_prefix, str(Path(rookery.__file__).parents[1]))
    user_write = expand_paths(options.write, home)
    return ConfinementPolicy(
        read=tuple(str(home / name) for name in CONFIG_PATHS),
        execute=(
            *SYSTEM_FOLDERS,
            *(str(home / name) for name in TOOLCHAINS),
            *on_path,
            *(path for path in chosen if path.startswith("/") and path != str(home)),
            *ours,
            *expand_paths(options.read, home),
        ),
        write=tuple(path for path in user_write if not path.startswith("/dev/")),
        unlisted=(SHARED_MEMORY,),
        devices=(*DEVICES, *(path for path in user_write if path.startswith("/dev/"))),
        unix_sockets=options.unix_sockets,
    )


def add_private_folder(policy: ConfinementPolicy, folder: PrivateFolder) -> ConfinementPolicy:
    return replace(policy, write=(*policy.write, *folder.writable))


def list_private_variables(environment: Mapping[str, str], folder: PrivateFolder) -> dict[str, str]:
    """Return the variables that lead programs to their private folder, and keep git from packing."""
    variables = {name: str(folder.path / relative) for name, relative in _PRIVATE_FOLDERS.items()}
    home = Path(environment.get("HOME") or Path.home())
    browsers = home / ".cache" / "ms-playwright"
    if "PLAYWRIGHT_BROWSERS_PATH" not in environment and browsers.is_dir():
        variables["PLAYWRIGHT_BROWSERS_PATH"] = str(browsers)
    count = environment.get("GIT_CONFIG_COUNT", "")
    start = int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 0
    for index, (key, value) in enumerate(_GIT_SETTINGS.items(), start):
        variables |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return variables | {"GIT_CONFIG_COUNT": str(start + len(_GIT_SETTINGS))}


def confine_environment(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the variables of a sandbox, and without those that name sockets."""
    kept = {name: value for name, value in environment.items() if name not in REMOVED_VARIABLES}
    return kept | dict(variables)


def expand_paths(paths: Iterable[str], home: Path, base: Path | None = None) -> tuple[str, ...]:
    """Return absolute paths: `~` is the home folder, and a relative path starts at `base`, or counts as none."""
    expanded: list[str] = []
    for path in paths:
        if path == "~" or path.startswith("~/"):
            expanded.append(str(home / path[2:]))
        elif path.startswith("/"):
            expanded.append(path)
        elif base is not None:
            expanded.append(str(base / path))
    return tuple(expanded)
