"""Connect to a server on a connection of its own, and record each step, its result and its duration."""

import shlex
import shutil
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from rookery.gateway.provider import CAPABILITY, LISTS, Kind
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.system.process.child import TailBuffer
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.redact import build_redactor, redact_definition
from rookery.upstreams.connect import ConnectionOpener, Connector
from rookery.upstreams.errors import UserActionRequired
from rookery.upstreams.oauth.manager import SignInManager
from rookery.upstreams.oauth.messages import BrowserPrompt, RedirectReply, SignInStep
from rookery.upstreams.sandbox import describe_sandbox, find_refused_calls
from rookery.wire.client.client import Client
from rookery.wire.client.stdio import ServerProgram
from rookery.wire.client.transport import (
    ClientTransport,
    HandleLoss,
    HandleMessage,
    SessionLost,
    TransportClosed,
    TransportUnsupported,
)
from rookery.wire.protocol.messages import RequestId, Response, WireError

T = TypeVar("T")

_MAX_TEXT = 300
# Errors of a step that are not faults of Rookery.
EXPECTED_ERRORS = (RookeryError, WireError, TransportClosed, TransportUnsupported, SessionLost)

_STDERR_LINES = 20
_MAX_TRACE_BYTES = 50_000_000


class DebugStep(msgspec.Struct):
    """One step of a debug run. `at_ms` counts from the beginning of the run."""

    what: str
    at_ms: float
    took_ms: float
    ok: bool
    told: str


class _Method(msgspec.Struct):
    method: str = "answer"


class _Refusal(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass
class StepRecorder:
    """Records steps. The texts do not contain the values of headers and variables."""

    definition: Definition
    steps: list[DebugStep] = field(default_factory=list[DebugStep])

    def __post_init__(self) -> None:
        self._started_at = SYSTEM_CLOCK.monotonic()
        self.clean = build_redactor(self.definition).clean

    def note(self, what: str, text: str, *, ok: bool = True, since: float | None = None) -> None:
        """Record a step that ends now and began at `since`, or now."""
        now = SYSTEM_CLOCK.monotonic()
        start = now if since is None else since
        at, took = (round(1000 * seconds, 1) for seconds in (start - self._started_at, now - start))
        self.steps.append(DebugStep(what, at, took, ok, self.clean(text)[:_MAX_TEXT]))

    async def step(self, what: str, work: Awaitable[T], text: str = "") -> T:
        """Wait for `work`, record it as a step, and return its result."""
        since = SYSTEM_CLOCK.monotonic()
        try:
            result = await work
        except EXPECTED_ERRORS as error:
            self.note(what, str(error) or type(error).__name__, ok=False, since=since)
            raise
        except BaseException:
            self.note(what, "cancelled", ok=False, since=since)
            raise
        self.note(what, _describe_response(result) if isinstance(result, Response) else text, since=since)
        return result


def _describe_response(response: Response) -> str:
    if response.error is None:
        return f"answered, {len(bytes(response.result))} bytes"
    refusal = msgspec.json.decode(response.error, type=_Refusal)
    return f"refused: {refusal.message} ({refusal.code})"


class RecordedChannel:
    """A transport that records each of its steps."""

    def __init__(self, channel: ClientTransport, name: str, record: StepRecorder) -> None:
        self._channel = channel
        self._name = name
        self._record = record

    async def open(self, on_message: HandleMessage, on_lost: HandleLoss) -> None:
        await self._record.step(f"open {self._name}", self._channel.open(on_message, on_lost))

    async def request(self, id_: RequestId, message: bytes, headers: Mapping[str, str]) -> Response:
        method = msgspec.json.decode(message, type=_Method).method
        return await self._record.step(method, self._channel.request(id_, message, headers))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        method = msgspec.json.decode(message, type=_Method).method
        await self._record.step(method, self._channel.send(message, headers), "sent")

    async def on_revision_agreed(self, revision: str) -> None:
        await self._channel.on_revision_agreed(revision)

    @property
    def close_reason(self) -> str | None:
        return self._channel.close_reason

    @property
    def challenge(self) -> str | None:
        return self._channel.challenge

    @property
    def cancels_by_closing(self) -> bool:
        return self._channel.cancels_by_closing

    @property
    def uses_headers(self) -> bool:
        return self._channel.uses_headers

    @property
    def strays(self) -> int:
        return self._channel.strays

    def list_problems(self) -> list[str]:
        return self._channel.list_problems()

    def diagnosis(self) -> str:
        return self._channel.diagnosis()

    async def close(self) -> None:
        await self._record.step(f"close {self._name}", self._channel.close())


class DebugReport(msgspec.Struct):
    """The result of a debug run. `error` says why the server did not connect."""

    name: str
    connected: bool
    error: str | None
    remedy: str
    steps: list[DebugStep]
    era: str | None
    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    counts: Mapping[str, int]
    stderr: list[str]
    problems: list[str] = []
    # With a trace: the system calls that were refused.
    refused: list[str] = []


@dataclass(frozen=True)
class _RecordingConnector(Connector):
    """Creates the same channels as another connector, and records what they do."""

    record: StepRecorder
    traced: bool = False

    def build_program(self, definition: Definition, directory: Path) -> ServerProgram:
        program = super().build_program(definition, directory)
        if not self.traced or program.confinement is None:
            return program
        words = ["strace", "-f", "-qq", "-e", "trace=%file,%network,kill,ptrace", "-o", _trace_file(program.env)]
        return replace(program, argv=[*words, "--", *program.argv])

    def channels(
        self, definition: Definition, directory: Path, errors: TailBuffer
    ) -> tuple[ClientTransport, ClientTransport | None]:
        newer, older = super().channels(definition, directory, errors)
        name = "process" if definition.kind == "local" else "Streamable HTTP"
        recorded = RecordedChannel(older, "HTTP+SSE", self.record) if older is not None else None
        return RecordedChannel(newer, name, self.record), recorded


async def debug_server(
    definition: Definition, directory: Path, checkout: Path | None, connector: Connector, *, trace: bool = False
) -> DebugReport:
    """Connect to a server beside the one that may be running, and report each step.

    With `trace`, also report the system calls that its sandbox has refused.
    """
    record = StepRecorder(definition)
    errors = TailBuffer()
    recording = _RecordingConnector(
        connector.spawner,
        connector.http,
        connector.is_approved,
        connector.signins,
        connector.environment,
        connector.find_opencode,
        record,
        trace and shutil.which("strace") is not None,
        sandboxes=connector.sandboxes,
    )
    report = DebugReport(definition.name, False, None, "", record.steps, None, {}, {}, {}, [])
    _note_definition(record, directory, connector)
    try:
        await _connect(report, ConnectionOpener(recording, definition, directory, checkout, errors))
    except EXPECTED_ERRORS as error:
        if isinstance(error, RookeryError) and error.code == "needs-approval":
            raise
        report.error = record.clean(str(error))
        report.remedy = record.clean(error.remedy) if isinstance(error, RookeryError) else ""
        if isinstance(error, UserActionRequired) and connector.signins.credentials(definition) is not None:
            await _probe_sign_in(record, connector.signins)
    if trace:
        report.refused = _read_refused_calls(record, recording, directory)
    record.steps.sort(key=lambda step: step.at_ms)
    report.stderr = [record.clean(line) for line in errors.text().splitlines()[-_STDERR_LINES:]]
    return report


def _trace_file(environment: Mapping[str, str]) -> str:
    return f"{environment['TMPDIR']}/trace"


def _read_refused_calls(record: StepRecorder, connector: _RecordingConnector, directory: Path) -> list[str]:
    """Return the refused system calls of a traced server, and remove the trace."""
    program = connector.build_program(record.definition, directory) if record.definition.kind == "local" else None
    if program is None or program.confinement is None:
        record.note("trace", "the server has no sandbox", ok=False)
        return []
    if not connector.traced:
        record.note("trace", "strace was not found; install it", ok=False)
        return []
    path = Path(_trace_file(program.env))
    try:
        trace = read_plain(path, _MAX_TRACE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        record.note("trace", f"there is no trace: {error.strerror}", ok=False)
        return []
    path.unlink(missing_ok=True)
    refused = [record.clean(call) for call in find_refused_calls(trace)]
    record.note("trace", f"{len(refused)} system calls were refused" if refused else "nothing was refused")
    return refused


async def _probe_sign_in(record: StepRecorder, signins: SignInManager) -> None:
    """Record the steps that a sign-in would take."""

    def on_message(message: SignInStep | BrowserPrompt | RedirectReply) -> None:
        if isinstance(message, SignInStep):
            record.note(f"sign-in: {message.what}", message.result, ok=message.ok)

    try:
        probe = await record.step("sign-in: look", signins.probe(record.definition, on_message))
    except RookeryError:
        return
    message = f"{probe.issuer} would ask you" if probe.registrable else "no client can be registered"
    record.note("sign-in", message, ok=probe.registrable)


async def _connect(report: DebugReport, opener: ConnectionOpener) -> None:
    client, _ = await opener.open(None, lambda notification: None)
    try:
        report.era = client.revision
        report.info = client.info
        report.capabilities = client.capabilities
        report.counts = {
            kind: await _count_entries(client, kind) for kind in LISTS if CAPABILITY[kind] in client.capabilities
        }
        report.connected = True
    finally:
        await client.close()


async def _count_entries(client: Client, kind: Kind) -> int:
    return len(await client.list_all(*LISTS[kind][:2]))


def _note_definition(record: StepRecorder, directory: Path, connector: Connector) -> None:
    """Record what the definition resolves to, with the names of headers and variables but not their values."""
    definition = record.definition
    written = redact_definition(definition)["written"]
    if definition.kind == "remote":
        headers = ", ".join(definition.headers) or "none"
        record.note("resolve", f"{written.get('url', '')}; headers: {headers}")
        if (issuer := connector.signins.find_issuer(definition)) is not None:
            record.note("sign-in", f"with a token from {issuer}")
        return
    program = connector.build_program(definition, directory)
    if program.confinement is not None and connector.sandboxes is not None:
        summary = describe_sandbox(connector.sandboxes.find_sandbox(definition, directory))
        record.note("sandbox", f"{summary}; writes {', '.join(program.confinement.write)}")
    path = shutil.which(program.argv[0], path=program.env.get("PATH"))
    where = path or f"{program.argv[0]} is not on the PATH"
    command = shlex.join([*_words(written, "command"), *_words(written, "args")])
    summary = f"{command} -> {where}; in {program.cwd}; variables: {', '.join(definition.environment) or 'none'}"
    record.note("resolve", summary, ok=path is not None)


def _words(written: Mapping[str, Any], key: str) -> list[str]:
    value: Any = written.get(key, [])
    return [str(word) for word in cast(list[Any], value)] if isinstance(value, list) else [str(value)]
