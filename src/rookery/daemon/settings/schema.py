"""Every setting: its type, default, meaning, and who may set it. The reference page is generated from this.

No repository may set anything of boulder: its messages cost money.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rookery.agents.opencode.release import ON_PATH, PINNED_VERSION, SUPPORTED
from rookery.gateway.elicitation import MAX_PARKED, MAX_PARKED_PER_OWNER, PARKED_SECONDS

Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]

# Marks a setting that a repository may set in .rookery/config.toml. Never a setting that protects something: a cloned
# repository must not weaken security.
PROJECT = {"project": True}
# Marks a setting that a running daemon applies at once.
LIVE = {"live": True}
# The warning of the log and of `rookery doctor` for `auth = "loopback"`.
LOOPBACK_WARNING = (
    'auth = "loopback": every program and every user of this machine can use the workspace and project tools of every '
    "workspace, without a token"
)


class GatewaySettings(msgspec.Struct, frozen=True):
    mode: Annotated[
        Literal["list", "search"],
        Meta(
            description="What clients get if they do not choose with `?mode=`: a `list` of all tools, or only the two "
            "tools to `search` for others and to call them."
        ),
    ] = "list"
    parked_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a call waits for the answer to a question of its server, or to one of yours "
            '(`"ask"`), before it is cancelled. Over HTTP the call also waits this long if its client never returns: '
            "the client may return on any connection, so a closed connection does not end the wait."
        ),
    ] = PARKED_SECONDS
    parked_calls: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)],
        Meta(description="How many calls may wait for an answer at the same time."),
    ] = MAX_PARKED
    parked_calls_each: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)],
        Meta(description="How many of these calls may use the same token."),
    ] = MAX_PARKED_PER_OWNER


class SessionAgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent and model of a name for new sessions. An empty field is left to OpenCode."""

    agent: str = ""
    model: str = ""


class SessionSettings(msgspec.Struct, frozen=True):
    agents: Annotated[
        dict[str, SessionAgentSettings],
        Meta(
            description="Names for an agent of OpenCode and a model, for new sessions: a table for each, such as "
            "`[sessions.agents.claude]`, with `agent` and `model` (written `provider/model`). What is left out is "
            "left to OpenCode. `claude` and `gpt` are predefined."
        ),
    ] = msgspec.field(default_factory=dict[str, SessionAgentSettings])
    save_roots: Annotated[
        str,
        Meta(
            pattern="^( *[~/][^,]*(,|$))*$",
            examples=["/srv/pictures,~/pictures"],
            description="Folders that `take_screenshot` may save pictures in for the owner, besides the session's "
            "workspace and the state folder: absolute paths, separated by commas; `~` is your home folder. Missing "
            "ones are created.",
        ),
    ] = ""
    terminals: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="How many terminals may run at once, about 300 MB each, to show the screens of sessions. If "
            "another is needed, the one that has been idle longest is ended. With 0, screens are renderings of the "
            "conversation.",
        ),
    ] = 4
    terminal_idle_seconds: Annotated[
        float, Meta(ge=1, le=86_400, description="After how long an unused terminal is ended.")
    ] = 300.0


EnforcementCount = Annotated[int, Meta(ge=1, le=1000)]


class BoulderSettings(msgspec.Struct, frozen=True):
    idle_seconds: Annotated[
        Seconds, Meta(description="How long a session must be idle before boulder prompts it to continue.")
    ] = 30.0
    cooldown_seconds: Annotated[
        Seconds,
        Meta(description="How long boulder waits between two enforcements; twice as long after each failure in a row."),
    ] = 30.0
    abort_seconds: Annotated[
        Seconds, Meta(description="How long boulder sends nothing to a session after its turn was aborted.")
    ] = 3.0
    failures: Annotated[
        EnforcementCount,
        Meta(
            description="After so many failures in a row boulder stops prompting a session until you send it a message."
        ),
    ] = 5
    budget: Annotated[
        Annotated[int, Meta(ge=0, le=1000)],
        Meta(description="How many enforcements a session without a budget of its own gets."),
    ] = 5
    checks: Annotated[
        str,
        Meta(
            description="The checks that decide whether work is left, separated by commas: `todos` (those of the "
            "session), `plan:<file>` (boxes `- [ ]` in a file of the workspace), `just:<task>` (a task that ends with "
            "0). If none of them has a result, the assistant's last message decides."
        ),
    ] = "todos"


class FileSettings(msgspec.Struct, frozen=True):
    secret: Annotated[
        str,
        Meta(
            description="Patterns for names of files that no tool reads, separated by commas, in addition to those "
            "that Rookery knows: `.env`, keys, credentials and the like."
        ),
    ] = ""
    allowed: Annotated[
        str,
        Meta(
            description="Patterns for names of files that may be read though they look like secrets, separated by "
            "commas, in addition to `.env.example` and the like."
        ),
    ] = ""


# Names of variables, or wildcards for them, separated by commas.
VariablePatterns = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*?\[\], -]*$", examples=["DATABASE_URL,AWS_*", "*"])]


class JustSettings(msgspec.Struct, frozen=True):
    approval: Annotated[
        Literal["changed", "always", "never"],
        Meta(
            description="Whether a justfile has to be approved before a tool runs one of its tasks: if it is `changed` "
            "compared with that of the main checkout when the project was added, `always`, or `never`."
        ),
    ] = "changed"
    seconds: Annotated[Seconds, Meta(description="How long a task may run if its caller sets no limit.")] = 600.0
    tasks_each: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="How many tasks one workspace may run at a time for clients with its token; further ones wait. "
            "Yours are not counted.",
        ),
    ] = 8
    env: Annotated[
        VariablePatterns,
        Meta(
            description="Variables that tasks get from the environment of the daemon, besides those that programs need "
            "to find files, the screen and proxies, and to use your language: names or wildcards, separated by commas. "
            "`*` passes on all of them, with your credentials."
        ),
    ] = ""


PluginTables = Annotated[
    dict[str, dict[str, Any]],
    Meta(
        description="Settings of plugins: a table for each, such as `[plugins.notify]`, whose keys the plugin "
        "defines. `[plugins.state_files]` names files in which OpenCode's plugins keep their state, as "
        '`name = "path in the workspace"`, besides those that Rookery knows.'
    ),
]


class PluginHookSettings(msgspec.Struct, frozen=True):
    seconds: Annotated[
        Seconds,
        Meta(description="How long a plugin may take while a caller waits: before and after a tool, for its state."),
    ] = 5.0
    event_seconds: Annotated[
        Seconds,
        Meta(description="How long a plugin may take for an event, which no caller waits for, or for an action."),
    ] = 60.0
    queue: Annotated[
        Count, Meta(description="How many events may be queued for one plugin; further events are dropped.")
    ] = 1000
    failures: Annotated[
        Count, Meta(description="After how many failures in a row a hook is switched off until the next start.")
    ] = 5


class ServerSettings(msgspec.Struct, frozen=True):
    proxy: Annotated[
        Literal["environment", "none"],
        Meta(
            description="Whether connections to remote MCP servers, and the sign-in to them, use the proxies that "
            "`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name in the `environment` of the daemon. Servers on this "
            "machine are always reached without a proxy."
        ),
    ] = "environment"
    env: Annotated[
        VariablePatterns,
        Meta(
            description="Variables that your own local MCP servers get from the environment of the daemon, besides "
            "those that programs need to find files, the screen and proxies, and to use your language: names or "
            "wildcards, separated by commas. `*` passes on all of them, with your credentials. Servers that a "
            "repository defines get only what their approved definition names."
        ),
    ] = ""
    sandbox: Annotated[
        Literal["agents", "off", "workspace", "read-only"],
        Meta(
            description="The [sandbox](../guide/sandbox.md#mcp-servers) of your own local MCP servers whose entry "
            "names none: none (`off`), one that may write to its workspace, or one that may only read it. `agents` "
            "means `workspace` in the workspaces of confined agents, and otherwise none."
        ),
    ] = "agents"
    repository_sandbox: Annotated[
        Literal["agents", "off", "workspace", "read-only"],
        Meta(description="The same for local MCP servers that a repository defines."),
    ] = "agents"


class HttpSettings(msgspec.Struct, frozen=True):
    port: Annotated[
        Port,
        Meta(
            description="The app port on 127.0.0.1. 0 uses the port of the last start, or else the first free one from "
            "7777 on. It is an error if a configured port is in use."
        ),
    ] = 0


class LimitSettings(msgspec.Struct, frozen=True):
    header_bytes: Annotated[Bytes, Meta(description="The largest head of a request.")] = 32_768
    header_seconds: Annotated[Seconds, Meta(description="How long the head of a request may take to arrive.")] = 10.0
    body_bytes: Annotated[Bytes, Meta(description="The largest body of a request.")] = 67_108_864
    body_seconds: Annotated[Seconds, Meta(description="How long the body of a request may take to arrive.")] = 60.0
    write_seconds: Annotated[Seconds, Meta(description="How long a client may pause reading a response.")] = 30.0
    keep_alive_seconds: Annotated[Seconds, Meta(description="How long an idle connection is kept.")] = 75.0
    connections: Annotated[
        Count,
        Meta(
            description="Connections at a time on one port, bounded by the file limit. The tokens of workspaces "
            "together may hold three quarters of them."
        ),
    ] = 512
    connections_each: Annotated[Count, Meta(description="Connections at a time of one workspace's token.")] = 128
    streams_each: Annotated[
        Count,
        Meta(description="Event streams, WebSockets and clients of Socket.IO at a time of one workspace's token."),
    ] = 64
    sessions_each: Annotated[
        Count,
        Meta(
            description="MCP sessions of one workspace's token. A further session ends an idle one: one that was never "
            "used, else the one used longest ago."
        ),
    ] = 256
    held_bytes: Annotated[
        Bytes,
        Meta(
            description="How many bytes large requests in progress and unread responses may hold at a time. The same "
            "number applies to events that are kept for clients, and to parked calls with subscriptions. The tokens "
            "of workspaces together may hold three quarters of them."
        ),
    ] = 536_870_912
    held_bytes_each: Annotated[Bytes, Meta(description="How many of these bytes one workspace's token may hold.")] = (
        67_108_864
    )
    workspaces_each: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)],
        Meta(
            description="How many workspaces one workspace may create with its token, including those that these "
            "create. Deleted workspaces do not count."
        ),
    ] = 8
    agents_each: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)],
        Meta(description="In how many of these workspaces an agent may run; then no other is created with an agent."),
    ] = 4


class LogSettings(msgspec.Struct, frozen=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The lowest level that is logged.", extra=PROJECT | LIVE),
    ] = "info"
    max_bytes: Annotated[Bytes, Meta(description="The size at which the log file is rotated.")] = 10_000_000
    files: Annotated[Annotated[int, Meta(ge=2, le=100)], Meta(description="How many log files are kept.")] = 5


class EventSettings(msgspec.Struct, frozen=True):
    history: Annotated[Count, Meta(description="How many past events are kept for `?since=`.")] = 1000
    queue: Annotated[Count, Meta(description="How many events a reader may lag behind before it is disconnected.")] = (
        1000
    )


class DaemonSettings(msgspec.Struct, frozen=True):
    loop: Annotated[
        Literal["auto", "uvloop", "asyncio"], Meta(description="The event loop; auto takes uvloop where it exists.")
    ] = "auto"
    stop_seconds: Annotated[Seconds, Meta(description="How long one service may take to stop.")] = 15.0


class WorktreeSettings(msgspec.Struct, frozen=True):
    path: Annotated[
        str,
        Meta(
            description="Where new workspaces go, with `{name}` and, if wanted, `{project}` or `{id}` in it; a "
            "relative path starts at the project's main checkout. Empty means the state folder."
        ),
    ] = ""


class WorkspaceSettings(msgspec.Struct, frozen=True):
    setup: Annotated[
        str,
        Meta(
            description="The command that prepares each new workspace of a project. It is read from the workspace's "
            "own `.rookery/config.toml` and from nowhere else, and runs once you have approved it.",
            extra=PROJECT,
        ),
    ] = ""
    setup_seconds: Annotated[Seconds, Meta(description="How long that command may take.")] = 1800.0


class AgentSettings(msgspec.Struct, frozen=True):
    version: Annotated[
        str,
        Meta(
            description=f"The OpenCode that agents run: a version, {SUPPORTED}, which `rookery agent install` "
            f"installs; or `{ON_PATH}` for the `opencode` and `rg` on PATH."
        ),
    ] = PINNED_VERSION
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
    answer_seconds: Annotated[
        Seconds, Meta(description="How long OpenCode may take to answer a request; a first prompt is sent again.")
    ] = 30.0
    idle_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=2_592_000)],
        Meta(description="How long an agent may be idle before it is stopped until it is needed. 0 means no limit."),
    ] = 0
    priority: Annotated[
        Literal["background", "normal"],
        Meta(
            description="The CPU priority of agents and their processes. With `background`, the gateway, your editor "
            "and other programs go first; an idle processor runs agents at full speed."
        ),
    ] = "background"
    sandbox: Annotated[
        Literal["off", "workspace", "strict"],
        Meta(
            description="Whether the kernel confines agents and everything that they start to their "
            "[workspace](../guide/sandbox.md): not (`off`), to its files (`workspace`), or also to some TCP ports "
            "(`strict`)."
        ),
    ] = "off"
    toolsets: Annotated[
        str,
        Meta(
            pattern="^[ ,]*((workspace|project|session|hub) *(,[ ,]*|$))*$",
            examples=["workspace", "workspace,project,session,hub"],
            description="The toolsets that agents get from Rookery, separated by commas: `workspace`, `project`, "
            "`session` and `hub`. The toolset `admin` is for the owner alone.",
        ),
    ] = "workspace"


class SandboxSettings(msgspec.Struct, frozen=True):
    read: Annotated[
        str,
        Meta(
            pattern="^( *[~/][^,]*(,|$))*$",
            examples=["~/.npmrc,/srv/tools"],
            description="Paths that every confined program may read and execute, in addition to those of the "
            "[sandbox](../guide/sandbox.md): absolute paths, separated by commas; `~` is your home folder.",
        ),
    ] = ""
    write: Annotated[
        str,
        Meta(
            pattern="^( *[~/][^,]*(,|$))*$",
            examples=["~/.m2,/dev/kvm"],
            description="Paths that every confined program may also write to, written in the same way.",
        ),
    ] = ""
    unix_sockets: Annotated[
        bool,
        Meta(
            description="Whether confined programs may use Unix sockets. They then reach every program of yours that "
            "listens on one: Docker, an ssh agent, your desktop."
        ),
    ] = False
    tasks: Annotated[
        Literal["agents", "off", "workspace", "strict"],
        Meta(
            description="The sandbox of what Rookery runs in a workspace for its project: just tasks and the setup "
            "command. `agents` means the one that `agents.sandbox` names. In the main checkout they are never "
            "confined: no confined program can change what runs there."
        ),
    ] = "agents"
    unavailable: Annotated[
        Literal["refuse", "unconfined"],
        Meta(
            description="What happens where a program should be confined and the kernel or the folder does not allow "
            "it: it does not start (`refuse`), or it starts `unconfined`."
        ),
    ] = "refuse"


class AuditSettings(msgspec.Struct, frozen=True):
    calls: Annotated[
        bool,
        Meta(
            description="Whether calls are recorded in the [audit](../guide/security.md#the-audit). Approvals, "
            "sign-ins and changes of settings always are."
        ),
    ] = True
    days: Annotated[
        Annotated[float, Meta(gt=0, le=36500)],
        Meta(
            description="How many days calls are kept in the audit. Approvals and other decisions have no such limit."
        ),
    ] = 90.0
    limit: Annotated[
        Bytes,
        Meta(
            description="How many bytes of calls the audit may hold, and how many of decisions; beyond that, the "
            "oldest records are removed first."
        ),
    ] = 268_435_456


class EndpointSettings(msgspec.Struct, frozen=True):
    first_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)],
        Meta(
            description="The first port of 127.0.0.1 for the servers of workspaces: each takes the next one that is "
            "free, and keeps it."
        ),
    ] = 3000


class TrashSettings(msgspec.Struct, frozen=True):
    days: Annotated[
        Annotated[float, Meta(gt=0, le=36500)],
        Meta(
            description="How many days a deleted workspace stays in the trash before it is removed permanently. Days "
            "on which the machine is switched off do not count, and a wrong clock changes nothing."
        ),
    ] = 14.0
    limit: Annotated[
        Bytes, Meta(description="How many bytes the trash may hold; beyond that, the oldest entries are removed first.")
    ] = 21_474_836_480


class GuardSettings(msgspec.Struct, frozen=True):
    pins: Annotated[
        Literal["on", "off"],
        Meta(
            description="With `on`, the definitions that a server lists first are pinned, and what changes or is added "
            "later is withheld until you approve it. With `off`, servers may change what agents read at any time."
        ),
    ] = "on"
    scan: Annotated[
        Literal["withhold", "report", "off"],
        Meta(
            description="What happens to definitions that the scanner has severe findings in: `withhold` them until "
            "you decide, or only `report` them. Lesser findings are always only reported."
        ),
    ] = "withhold"
    rules_off: Annotated[
        dict[str, str],
        Meta(
            description="Rules of the scanner that are switched off, by their id, each with your reason: "
            '`[guard.rules_off]`, `forced-use = "our own server says so on purpose"`. The rule `limit` stays on.'
        ),
    ] = msgspec.field(default_factory=dict[str, str])
    results: Annotated[
        Literal["off", "mark", "withhold"],
        Meta(
            description="Whether results of tools are scanned, for instructions to the model and for secrets of your "
            "environment: `mark` adds a warning to the result, `withhold` replaces it by an error. It costs time on "
            "each call."
        ),
    ] = "off"


class NotifySettings(msgspec.Struct, frozen=True):
    command: Annotated[
        str,
        Meta(
            description="A command to run when a workspace starts to need you. It gets the workspace as JSON on "
            "stdin, and `ROOKERY_WORKSPACE_NAME`, `ROOKERY_WORKSPACE_PATH` and `ROOKERY_ATTENTION` in its environment."
        ),
    ] = ""
    check_seconds: Annotated[
        Annotated[float, Meta(ge=0.1, le=86400)],
        Meta(
            description="How often, in seconds, all workspaces are checked for needs that no event reports, such as "
            "conflicts with the base. Used only with a `notify.command`."
        ),
    ] = 60.0


class Settings(msgspec.Struct, frozen=True):
    auth: Annotated[
        Literal["token", "loopback"],
        Meta(
            description="With `token`, every TCP client must send a token. With `loopback`, a client without a token "
            "may select any workspace and use its `workspace` and `project` tools; a token that is sent is checked as "
            "usual."
        ),
    ] = "token"
    http: HttpSettings = HttpSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    events: EventSettings = EventSettings()
    daemon: DaemonSettings = DaemonSettings()
    worktrees: WorktreeSettings = WorktreeSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    trash: TrashSettings = TrashSettings()
    notify: NotifySettings = NotifySettings()
    agents: AgentSettings = AgentSettings()
    sandbox: SandboxSettings = SandboxSettings()
    audit: AuditSettings = AuditSettings()
    endpoints: EndpointSettings = EndpointSettings()
    files: FileSettings = FileSettings()
    just: JustSettings = JustSettings()
    sessions: SessionSettings = SessionSettings()
    boulder: BoulderSettings = BoulderSettings()
    gateway: GatewaySettings = GatewaySettings()
    servers: ServerSettings = ServerSettings()
    guard: GuardSettings = GuardSettings()
    hooks: PluginHookSettings = PluginHookSettings()
    plugins: PluginTables = msgspec.field(default_factory=dict[str, dict[str, Any]])
