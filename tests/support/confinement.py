"""Attacks from inside a confined program, and the world that they are tried on.

Each attack is a shell command that ends with 0 only if it has succeeded. It finds its targets in variables.
"""

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rookery.system.confinement.locations import SandboxOptions
from rookery.system.ids import project_id
from rookery.workspaces.confinement import WorkspaceSandbox, WorkspaceSandboxes
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree
from tests.support.workspaces.service import commit, git, make_repository

SECRET = "a-secret-of-the-owner"

_CONNECT = (
    "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(os.environ[sys.argv[1]]); s.send(b'GET')"
)
_ABSTRACT = "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT'])"
_DATAGRAM = (
    "import os, socket, sys; s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); p = os.environ['DATAGRAM']; "
    "s.sendto(b'evil', p) if sys.argv[1] == 'send' else (s.connect(p), s.send(b'evil'))"
)
_LIBC = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True); V = int(os.environ['VICTIM']); "
_TRACE = _LIBC + "sys.exit(c.ptrace(16, V, 0, 0) != 0)"
_READ_MEMORY = _LIBC + (
    "b = ctypes.create_string_buffer(8); m = open(f'/proc/{V}/maps').readline().split('-')[0]; "
    "I = type('I', (ctypes.Structure,), {'_fields_': [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]}); "
    "l, r = I(ctypes.addressof(b), 8), I(int(m, 16), 8); "
    "sys.exit(c.process_vm_readv(V, ctypes.byref(l), 1, ctypes.byref(r), 1, 0) != 8)"
)
_LIMIT = "import os, resource; resource.prlimit(int(os.environ['VICTIM']), resource.RLIMIT_NOFILE, (64, 64))"
_IO_URING = _LIBC + "sys.exit(c.syscall(425, 8, ctypes.create_string_buffer(120)) < 0)"
_ADD_KEY = _LIBC + "sys.exit(c.syscall(248, b'user', b'rookery-test', b'x', 1, -2) < 0)"
_ATTACH = _LIBC + (
    "c.shmat.restype = ctypes.c_void_p; a = c.shmat(int(os.environ['SEGMENT']), None, 0); "
    "print(ctypes.string_at(a).decode()) if a not in (None, 2**64 - 1) else sys.exit(1)"
)
_SHARE = _LIBC + "f = getattr(c, sys.argv[1]); sys.exit(f(*map(int, sys.argv[2:])) < 0)"
_QUEUE = _LIBC + (
    "n = b'rookery-test'; q = c.syscall(240 if os.uname().machine == 'x86_64' else 180, n, 0o102, 0o600, None); "
    "c.mq_unlink(b'/rookery-test'); sys.exit(q < 0)"
)
_BY_HANDLE = _LIBC + (
    "h = ctypes.create_string_buffer(136); h[0:4] = (128).to_bytes(4, sys.byteorder); m = ctypes.c_int(); "
    "p = os.environ['KEY'].encode(); "
    "assert c.name_to_handle_at(-100, p, h, ctypes.byref(m), 0) == 0; "
    "d = os.open(os.environ['WT'], os.O_RDONLY); f = c.open_by_handle_at(d, h, os.O_RDONLY); "
    "print(os.read(f, 100).decode()) if f >= 0 else sys.exit(1)"
)
_DAEMONIZE = (
    "import os, sys, time; r, w = os.pipe(); p = os.fork()\n"
    "if p == 0:\n os.setsid()\n if os.fork() == 0:\n  os.environ.clear()\n"
    "  os.write(w, open(sys.argv[1]).read().encode())\n"
    " os._exit(0)\nos.close(w); t = os.read(r, 100); print(t.decode()); sys.exit(not t)"
)
_TERMINAL = "import os; f = os.open(os.environ['TERMINAL'], os.O_RDWR | os.O_NOCTTY); os.write(f, b'rm -rf')"
_GET_DESCRIPTOR = _LIBC + (
    "p = os.pidfd_open(V); f = c.syscall(438, p, 0, 0); print(os.pread(f, 100, 0).decode()) if f >= 0 else sys.exit(1)"
)
_OPEN_AGAIN = "import os; f = os.open(os.environ['KEY'], os.O_PATH); print(open(f'/proc/self/fd/{f}').read())"
_LINK_DESCRIPTOR = _LIBC + (
    "f = os.open(os.environ['KEY'], os.O_PATH); "
    "c.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'linked', 0x400) == 0 or sys.exit(1); print(open('linked').read())"
)
_MMAP = "import os; f = os.open(os.environ['RC'], os.O_RDWR); os.ftruncate(f, 0)"


def _python(code: str, *words: str) -> str:
    quoted = " ".join(f'"{word}"' if word.startswith("$") else word for word in words)
    return f"\"$PYTHON\" -c '{code.replace(chr(39), chr(34))}' {quoted}"


@dataclass(frozen=True)
class Attack:
    """A command, and whether it succeeds without confinement here: `root` means that only root's does."""

    command: str
    root: bool = False
    reads: bool = False


def _reads(command: str) -> Attack:
    return Attack(command, reads=True)


ATTACKS = {
    "K01-read-the-owners-token": _reads('cat "$STATE/token"'),
    "K02-use-the-owners-socket": Attack(_python(_CONNECT, "SOCKET")),
    "K03-use-docker": Attack(_python(_CONNECT, "DOCKER")),
    "K04-use-dbus-and-systemd-run": Attack(_python(_CONNECT, "DBUS")),
    "K05-use-the-ssh-agent": Attack(_python(_CONNECT, "SSH_AUTH")),
    "K06-use-tmux": Attack(_python(_CONNECT, "TMUX_SOCKET")),
    "K07-use-an-abstract-socket": Attack(_python(_ABSTRACT)),
    "K08-read-the-store": _reads('cat "$STATE/rookery.db"'),
    "K09-read-an-ssh-key": _reads('cat "$KEY"'),
    "K10-list-the-ssh-folder": Attack('ls "$HOME/.ssh"'),
    "K11-read-aws-credentials": _reads('cat "$HOME/.aws/credentials"'),
    "K12-read-gcloud-credentials": _reads('cat "$HOME/.config/gcloud/credentials.db"'),
    "K13-read-a-kubeconfig": _reads('cat "$HOME/.kube/config"'),
    "K14-read-a-browser-profile": _reads('cat "$HOME/.mozilla/firefox/profile/cookies.sqlite"'),
    "K15-read-the-shell-history": _reads('cat "$HOME/.bash_history"'),
    "K16-read-netrc": _reads('cat "$HOME/.netrc"'),
    "K17-list-the-home-folder": Attack('ls "$HOME"'),
    "K18-list-the-root-folder": Attack("ls /"),
    "K19-append-to-bashrc": Attack('echo evil >> "$RC"'),
    "K20-add-an-autostart-entry": Attack('mkdir -p "$HOME/.config/autostart" && touch "$HOME/.config/autostart/x"'),
    "K21-add-an-authorized-key": Attack('echo evil >> "$HOME/.ssh/authorized_keys"'),
    "K22-add-a-cron-or-at-job": Attack(
        "touch /var/spool/rookery-test && rm /var/spool/rookery-test", root=True
    ),
    "K23-read-a-file-of-another-workspace": _reads('cat "$OTHER/notes.txt"'),
    "K24-write-a-file-of-another-workspace": Attack('echo evil > "$OTHER/notes.txt"'),
    "K25-list-another-workspace": Attack('ls "$OTHER"'),
    "K26-read-a-file-of-the-main-checkout": _reads('cat "$APP/secret.txt"'),
    "K27-write-a-file-of-the-main-checkout": Attack('echo evil > "$APP/README.md"'),
    "K28-write-a-hook": Attack('echo "#!/bin/sh" > "$APP/.git/hooks/pre-commit"'),
    "K29-replace-a-hook-by-rename": Attack('echo evil > h && mv h "$APP/.git/hooks/post-commit"'),
    "K30-set-a-hooks-path": Attack('git config core.hooksPath "$WT/hooks"'),
    "K31-set-an-fsmonitor": Attack('git -C "$WT" config core.fsmonitor ./evil'),
    "K32-write-the-attributes-of-the-repository": Attack('echo "* filter=x" > "$APP/.git/info/attributes"'),
    "K33-damage-the-git-folder-of-another-workspace": Attack('echo evil > "$APP/.git/worktrees/other/HEAD.new"'),
    "K34-remove-another-workspace": Attack('git worktree add -q "$OUT/more" HEAD && rm -r "$OUT/more"'),
    "K35-read-through-a-symbolic-link": _reads('ln -sf "$KEY" link && cat link'),
    "K36-read-through-a-linked-folder": _reads('ln -sfn "$HOME/.ssh" folder && cat folder/id_ed25519'),
    "K37-read-through-a-hard-link": _reads('rm -f hard && ln "$KEY" hard && cat hard'),
    "K38-move-a-file-in": _reads('cp "$HOME/.netrc" "$HOME/.netrc2" && mv "$HOME/.netrc2" moved && cat moved'),
    "K39-move-a-file-out": Attack('echo evil > out && mv out "$HOME/.profile"'),
    "K40-read-the-environment-of-a-process": _reads('tr "\\0" "\\n" < /proc/$VICTIM/environ | grep SECRET'),
    "K41-go-through-the-root-of-a-process": _reads('cat "/proc/$VICTIM/root$KEY"'),
    "K42-go-through-the-folder-of-a-process": _reads('cat "/proc/$VICTIM/cwd/id_ed25519"'),
    "K43-open-a-descriptor-of-a-process": _reads("cat /proc/$VICTIM/fd/0"),
    "K44-signal-a-process": Attack("kill -0 $VICTIM"),
    "K45-trace-a-process": Attack(_python(_TRACE)),
    "K46-read-the-memory-of-a-process": Attack(_python(_READ_MEMORY)),
    "K47-change-the-limits-of-a-process": Attack(_python(_LIMIT)),
    "K48-mount-in-a-user-namespace": Attack('mkdir -p m && unshare -rm sh -c "mount --bind $HOME/.ssh m && ls m"'),
    "K49-change-the-root-in-a-user-namespace": _reads('unshare -r chroot / cat "$KEY"'),
    "K50-make-a-device": Attack("rm -f disk && mknod disk c 1 3", root=True),
    "K51-open-by-a-handle": Attack(_python(_BY_HANDLE), root=True, reads=True),
    "K52-use-io-uring": Attack(_python(_IO_URING)),
    "K53-use-the-keys-of-the-kernel": Attack(_python(_ADD_KEY)),
    "K54-write-to-another-terminal": Attack(_python(_TERMINAL)),
    "K55-truncate-a-file": Attack(_python(_MMAP)),
    "K56-change-a-setting-of-the-kernel": Attack(
        "read x < /proc/sys/kernel/core_pattern && echo \"$x\" > /proc/sys/kernel/core_pattern", root=True
    ),
    "K57-use-the-folder-of-another-sandbox": Attack('echo evil > "$STATE/sandbox/neighbour/file"'),
    "K58-replace-its-own-sandbox-folder": Attack('mv "$PRIVATE" "$PRIVATE.old" && mv "$PRIVATE.old" "$PRIVATE"'),
    "K59-replace-the-program-that-runs-next": Attack('echo evil > "$STATE/opencode/releases/opencode"'),
    "K60-read-from-a-daemon-that-has-shed-its-marker": _reads(_python(_DAEMONIZE, "$KEY")),
    "K61-read-with-an-empty-environment": _reads('env -i cat "$KEY"'),
    "K62-run-a-program-of-the-owner": Attack('"$HOME/tool"'),
    "K63-list-shared-memory": Attack("ls /dev/shm"),
    "K64-write-a-setting-of-rookery": Attack('echo evil > "$HOME/.config/rookery/config.toml"'),
    "K65-send-a-datagram-to-a-socket": Attack(_python(_DATAGRAM, "send")),
    "K66-connect-a-datagram-socket": Attack(_python(_DATAGRAM, "connect")),
    "K67-attach-shared-memory-of-the-owner": _reads(_python(_ATTACH)),
    "K68-make-shared-memory": Attack(_python(_SHARE, "shmget", "0", "4096", "384")),
    "K69-make-a-message-queue": Attack(_python(_SHARE, "msgget", "0", "384")),
    "K70-make-semaphores": Attack(_python(_SHARE, "semget", "0", "1", "384")),
    "K71-make-a-queue-of-posix": Attack(_python(_QUEUE)),
    "K72-replace-a-reflog-by-a-link": Attack('cd "$APP/.git/logs/refs/heads" && rm -f other && ln -s "$RC" other'),
    "K73-move-a-link-into-the-reflogs": Attack('ln -sf "$RC" moving && mv moving "$APP/.git/logs/refs/heads/more"'),
    "K74-move-a-folder-with-a-link-into-the-reflogs": Attack(
        'mkdir -p heads && ln -sf "$RC" heads/other && mv -T heads "$APP/.git/logs/refs/more"'
    ),
    "K75-link-a-ref": Attack('ln -s "$RC" "$APP/.git/refs/heads/linked"'),
    "K76-link-a-reflog-of-its-own": Attack('ln -sf "$RC" "$APP/.git/worktrees/fix/logs/HEAD"'),
    "K77-read-the-credentials-of-git": _reads('cat "$HOME/.config/git/credentials"'),
    "K78-read-the-credentials-of-uv": _reads('cat "$HOME/.local/share/uv/credentials/x"'),
    "K79-read-a-private-key-of-dotnet": _reads('cat "$HOME/.dotnet/corefx/cryptography/x509stores/my/x.pfx"'),
    "K80-lead-the-repository-to-another-config": Attack('echo "$WT/evil" > "$APP/.git/commondir"'),
    "K81-register-a-worktree": Attack('mkdir "$APP/.git/worktrees/new"'),
    "K82-take-a-descriptor-of-a-process": _reads(_python(_GET_DESCRIPTOR)),
    "K83-open-a-path-again-through-its-descriptor": _reads(_python(_OPEN_AGAIN)),
    "K84-link-a-file-through-its-descriptor": _reads(_python(_LINK_DESCRIPTOR)),
}  # fmt: skip


@dataclass
class World:
    """A user's machine in a folder: a home, a state folder, a repository with two workspaces, sockets and a process."""

    folder: Path
    sandbox: WorkspaceSandbox
    workspace: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    def picture(self) -> dict[str, str]:
        """Return what no confined program may change: all files but those of its workspace and of its git folder."""
        kept: dict[str, str] = {}
        policy = self.sandbox.policy
        own = (self.workspace, self.sandbox.folder.path, *map(Path, (*policy.write, *policy.linkless)))
        for path in sorted(self.folder.rglob("*")):
            if not any(path.is_relative_to(folder) for folder in own) and path.is_file():
                kept[str(path)] = path.read_text(errors="replace")
        return kept


@contextmanager
def make_world(folder: Path) -> Generator[World]:
    """Make a world and end its process afterwards."""
    home, state, app = folder / "home", folder / "state", folder / "app"
    secret_files = (
        *(".ssh/id_ed25519", ".aws/credentials", ".config/gcloud/credentials.db", ".kube/config", ".netrc"),
        *(".mozilla/firefox/profile/cookies.sqlite", ".bash_history", ".config/git/credentials"),
        *(".local/share/uv/credentials/x", ".dotnet/corefx/cryptography/x509stores/my/x.pfx"),
    )
    for path in (*(home / name for name in secret_files), state / "token", state / "rookery.db"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    for path in (state / "opencode" / "releases" / "opencode", state / "sandbox" / "neighbour" / "file"):
        path.parent.mkdir(parents=True)
        path.write_text("")
    (home / ".bashrc").write_text("# mine\n")
    (home / ".config" / "rookery").mkdir()
    (home / "tool").write_text("#!/bin/sh\n")
    (home / "tool").chmod(0o755)
    make_repository(app, {"README.md": "# The app\n"})
    (app / "secret.txt").write_text(SECRET)
    places = {name: folder / "worktrees" / name for name in ("fix", "other")}
    for name, path in places.items():
        git(app, "worktree", "add", "-q", "-b", name, str(path))
    commit(places["fix"], "first")
    (places["other"] / "notes.txt").write_text(SECRET)
    project = Project(project_id(app), "app", str(app))
    workspace = Workspace(project, "fix", places["fix"], "fix", False, "ready")
    located = LocatedWorkspace(workspace, Worktree(places["fix"]), app / ".git" / "worktrees" / "fix")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    sandbox = WorkspaceSandboxes(state, SandboxOptions()).make(located, "workspace", environment)
    assert sandbox is not None and sandbox.missing == ()
    with contextlib.ExitStack() as stack:
        sockets = {
            name: _listen(stack, folder / f"{name.lower()}.sock")
            for name in ("SOCKET", "DOCKER", "DBUS", "SSH_AUTH", "TMUX_SOCKET")
        }
        sockets["DATAGRAM"] = _listen(stack, folder / "datagram.sock", socket.SOCK_DGRAM)
        abstract = f"rookery-test-{secrets.token_hex(8)}"
        _listen(stack, f"\0{abstract}")
        key = home / ".ssh" / "id_ed25519"
        parent, child = os.openpty()
        stack.callback(os.close, parent)
        stack.callback(os.close, child)
        with key.open() as opened:
            victim = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(3600)"],
                stdin=opened,
                cwd=key.parent,
                env={**os.environ, "SECRET": SECRET},
            )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        variables = {
            **environment, **sockets, "ABSTRACT": abstract, "STATE": str(state), "APP": str(app), "OUT": str(folder),
            "OTHER": str(places["other"]), "WT": str(places["fix"]), "KEY": str(key), "RC": str(home / ".bashrc"),
            "VICTIM": str(victim.pid), "TERMINAL": os.ttyname(child), "PYTHON": sys.executable,
            "SEGMENT": str(_share(stack, SECRET.encode())), "PRIVATE": str(sandbox.folder.path),
            "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip
        yield World(folder, sandbox, places["fix"], variables)


def _listen(stack: contextlib.ExitStack, path: Path | str, kind: int = socket.SOCK_STREAM) -> str:
    sock = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
    sock.bind(str(path))
    if kind == socket.SOCK_STREAM:
        sock.listen(100)
    return str(path)


def _share(stack: contextlib.ExitStack, content: bytes) -> int:
    """Put `content` into a segment of shared memory, and return its number."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    remove = 0
    segment: int = libc.shmget(0, 4096, 0o600)
    address = libc.shmat(segment, None, 0)
    stack.callback(libc.shmctl, segment, remove, None)
    ctypes.memmove(address, content, len(content))
    libc.shmdt(ctypes.c_void_p(address))
    return segment
