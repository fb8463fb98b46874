"""Every setting there is: its type, default, meaning, and who may give it. The reference page is made from this."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rookery.agents.release import ON_PATH, PINNED, SUPPORTED
from rookery.daemon.boulder_settings import Boulder
from rookery.daemon.file_settings import Files, Just
from rookery.daemon.gateway_settings import Gateway
from rookery.daemon.plugin_settings import Hooks, Tables
from rookery.daemon.session_settings import Sessions
from rookery.daemon.setting_kinds import Bytes, Count, Port, Seconds

# Marks a setting that a repository may set in .rookery/config.toml. Never one that guards something: a cloned
# repository must not open a door.
PROJECT = {"project": True}
# Marks a setting that a running daemon takes over at once.
LIVE = {"live": True}


class Http(msgspec.Struct, frozen=True):
    port: Annotated[
        Port,
        Meta(
            description="The app port on 127.0.0.1. 0 takes the one of the last start, or else the first free one from "
            "7777 on. A port that is set and taken is an error."
        ),
    ] = 0


class Limits(msgspec.Struct, frozen=True):
    header_bytes: Annotated[Bytes, Meta(description="The largest head of a request.")] = 32_768
    header_seconds: Annotated[Seconds, Meta(description="How long the head of a request may take to arrive.")] = 10.0
    body_bytes: Annotated[Bytes, Meta(description="The largest body of a request.")] = 67_108_864
    body_seconds: Annotated[Seconds, Meta(description="How long the body of a request may take to arrive.")] = 60.0
    write_seconds: Annotated[Seconds, Meta(description="How long a client may stop reading its answer.")] = 30.0
    keep_alive_seconds: Annotated[Seconds, Meta(description="How long an idle connection is kept.")] = 75.0
    connections: Annotated[Count, Meta(description="Connections at a time on one port, bounded by the file limit.")] = (
        512
    )


class Log(msgspec.Struct, frozen=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least level that is logged.", extra=PROJECT | LIVE),
    ] = "info"
    max_bytes: Annotated[Bytes, Meta(description="The size at which the log file is rotated.")] = 10_000_000
    files: Annotated[Annotated[int, Meta(ge=2, le=100)], Meta(description="How many log files are kept.")] = 5


class Events(msgspec.Struct, frozen=True):
    history: Annotated[Count, Meta(description="How many events `?since=` can go back.")] = 1000
    queue: Annotated[Count, Meta(description="How many events a reader may be behind before it is cut off.")] = 1000


class Daemon(msgspec.Struct, frozen=True):
    loop: Annotated[
        Literal["auto", "uvloop", "asyncio"], Meta(description="The event loop; auto takes uvloop where it exists.")
    ] = "auto"
    stop_seconds: Annotated[Seconds, Meta(description="How long one service may take to stop.")] = 15.0


class Worktrees(msgspec.Struct, frozen=True):
    path: Annotated[
        str,
        Meta(
            description="Where new workspaces go, with `{name}` and, if wanted, `{project}` or `{id}` in it; a "
            "relative path counts from the project's main checkout. Nothing means the state folder."
        ),
    ] = ""


class Workspace(msgspec.Struct, frozen=True):
    setup: Annotated[
        str,
        Meta(
            description="The command that prepares each new workspace of a project. It is read from the workspace's "
            "own `.rookery/config.toml` and from nowhere else, and runs once you have approved it.",
            extra=PROJECT,
        ),
    ] = ""
    setup_seconds: Annotated[Seconds, Meta(description="How long that command may take.")] = 1800.0


class Agents(msgspec.Struct, frozen=True):
    version: Annotated[
        str,
        Meta(
            description=f"The OpenCode that agents run: a version, {SUPPORTED}, which `rookery agent install` brings; "
            f"or `{ON_PATH}` for the `opencode` and `rg` on PATH."
        ),
    ] = PINNED
    start: Annotated[
        Literal["open", "use"],
        Meta(description="When an agent starts: with its workspace (`open`), or when something needs it (`use`)."),
    ] = "open"
    env_from: Annotated[
        Literal["daemon", "login-shell"],
        Meta(description="Where agents get their environment from: the daemon's own, or what a login shell sets."),
    ] = "daemon"
    start_seconds: Annotated[
        Seconds, Meta(description="How long OpenCode may take until it listens; a start that fails is tried once more.")
    ] = 60.0
    idle_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=2_592_000)],
        Meta(description="How long an agent may idle before it is stopped until something needs it. 0 means for ever."),
    ] = 0
    priority: Annotated[
        Literal["background", "normal"],
        Meta(
            description="Whether agents, and what they run, let others go first who want the processor: the gateway, "
            "your editor (`background`). They are as fast as ever while nobody does."
        ),
    ] = "background"
    toolsets: Annotated[
        str, Meta(description="The toolsets that agents get from Rookery, with commas between them.")
    ] = "workspace"


class Endpoints(msgspec.Struct, frozen=True):
    first_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)],
        Meta(
            description="The first port of 127.0.0.1 for the servers of workspaces: each takes the next one that is "
            "free, and keeps it."
        ),
    ] = 3000


class Trash(msgspec.Struct, frozen=True):
    days: Annotated[
        Annotated[float, Meta(gt=0, le=36500)],
        Meta(description="How many days a deleted workspace stays in the trash before it is gone for good."),
    ] = 14.0
    limit: Annotated[
        Bytes, Meta(description="How many bytes the trash may hold; over that, what was deleted first goes first.")
    ] = 21_474_836_480


class Notify(msgspec.Struct, frozen=True):
    command: Annotated[
        str,
        Meta(
            description="A command to run when a workspace begins to need you. It gets the workspace as JSON on stdin, "
            "and `ROOKERY_WORKSPACE_NAME`, `ROOKERY_WORKSPACE_PATH` and `ROOKERY_ATTENTION` in its environment."
        ),
    ] = ""


class Settings(msgspec.Struct, frozen=True):
    auth: Annotated[
        Literal["token", "loopback"],
        Meta(
            description="`token` asks every TCP client for its token. `loopback` trusts whoever reaches 127.0.0.1; "
            "Host and Origin are checked all the same."
        ),
    ] = "token"
    http: Http = Http()
    limits: Limits = Limits()
    log: Log = Log()
    events: Events = Events()
    daemon: Daemon = Daemon()
    worktrees: Worktrees = Worktrees()
    workspace: Workspace = Workspace()
    trash: Trash = Trash()
    notify: Notify = Notify()
    agents: Agents = Agents()
    endpoints: Endpoints = Endpoints()
    files: Files = Files()
    just: Just = Just()
    sessions: Sessions = Sessions()
    boulder: Boulder = Boulder()
    gateway: Gateway = Gateway()
    hooks: Hooks = Hooks()
    plugins: Tables = msgspec.field(default_factory=dict[str, dict[str, Any]])
