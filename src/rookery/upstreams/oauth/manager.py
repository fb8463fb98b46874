"""The sign-ins of the daemon: the credentials of each server, running logins, and refusals."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.errors import UserActionRequired, client_required, sign_in_required, token_required
from rookery.upstreams.oauth.credentials import AuthChallenge, Credentials, GrantStore, SignInTarget
from rookery.upstreams.oauth.helper import HelperProcess, MessageCallback
from rookery.upstreams.oauth.messages import (
    BrowserPrompt,
    GrantResult,
    HelperMode,
    HelperRequest,
    Outcome,
    ProbeResult,
    RedirectReply,
    SignInStep,
    Terms,
)
from rookery.upstreams.oauth.metadata import CLIENT_REGISTRATION_HELP
from rookery.upstreams.oauth.terms import find_terms
from rookery.wire.http_client.proxy import ProxySettings

LOGIN_SECONDS = 300.0


SignInVerdict = Literal["granted", "failed", "cancelled", "removed"]


@dataclass
class LoginAttempt:
    """One login, running or ended.

    `on_granted` is called with its result, and `on_ended` in any case, with how it ended and why.
    """

    helper: HelperProcess
    request: HelperRequest
    on_granted: Callable[[GrantResult], None]
    on_ended: Callable[["SignInVerdict", str], None]
    steps: list[SignInStep] = field(default_factory=list[SignInStep])

    def __post_init__(self) -> None:
        self._tasks = TaskSet("login")
        self._prompt: asyncio.Future[BrowserPrompt] = asyncio.get_running_loop().create_future()
        self._cancel_reason: str | None = None
        self._redirect_reply: asyncio.Future[str | None] | None = None
        self._work = self._tasks.start(self._run(), "run")

    @property
    def running(self) -> bool:
        return not self._work.done()

    async def wait_for_prompt(self) -> BrowserPrompt:
        """Wait for the address that a person must open. Raise the error if the login fails before that."""
        await asyncio.wait([self._prompt, self._work], return_when=asyncio.FIRST_COMPLETED)
        if self._prompt.done():
            return self._prompt.result()
        raise self._failure() or RookeryError("sign-in-failed", "the sign-in ended before the user was asked")

    async def wait(self) -> None:
        """Wait until the login is done. Raise the error if it failed."""
        await asyncio.wait([self._work])
        if (failure := self._failure()) is not None:
            raise failure

    async def send_redirect(self, url: str) -> None:
        """Send the address that the browser was redirected to. Raise if it is rejected."""
        if self.running:
            self._redirect_reply = asyncio.get_running_loop().create_future()
            self.helper.send_redirect(url)
            await asyncio.wait([self._redirect_reply, self._work], return_when=asyncio.FIRST_COMPLETED)
            if self._redirect_reply.done() and (why := self._redirect_reply.result()) is not None:
                raise RookeryError("invalid-input", f"this address cannot be used: {why}", "copy the whole address")

    async def cancel(self, why: str) -> None:
        self._cancel_reason = why
        await self._tasks.close()

    def _failure(self) -> RookeryError | None:
        if self._work.cancelled():
            return RookeryError("sign-in-failed", self._cancel_reason or "the sign-in was cancelled", "start again")
        return self._work.result()

    async def _run(self) -> RookeryError | None:
        try:
            outcome = await self.helper.run(self.request, self._on_message)
            assert isinstance(outcome, GrantResult)
            self.on_granted(outcome)
        except RookeryError as error:
            self.on_ended("failed", error.message)
            return error
        except asyncio.CancelledError:
            self.on_ended("cancelled", self._cancel_reason or "")
            raise
        self.on_ended("granted", "")
        return None

    def _on_message(self, message: SignInStep | BrowserPrompt | RedirectReply) -> None:
        if isinstance(message, SignInStep):
            self.steps.append(message)
        elif isinstance(message, RedirectReply):
            if self._redirect_reply is not None and not self._redirect_reply.done():
                self._redirect_reply.set_result(message.why)
        elif not self._prompt.done():
            self._prompt.set_result(message)


# Called when the sign-in of a server has changed or more is known of it, with whether its connections can stay.
SignInCallback = Callable[[SignInTarget, bool], None]


class SignInManager:
    """The sign-ins to all servers. Only the owner starts a login, and no call waits for one."""

    def __init__(self, folder: Path, spawner: Spawner, proxies: ProxySettings) -> None:
        self.on_changed: SignInCallback = lambda subject, stays: None
        # Called when a login has ended or a sign-in was removed, with the reason of a failure.
        self.on_ended: Callable[[SignInTarget, SignInVerdict, str], None] = lambda target, verdict, why: None
        self._folder = folder
        self._spawner = spawner
        self._proxies = proxies
        self._grants = GrantStore(folder / "sign-in")
        self._credentials: dict[tuple[SignInTarget, Terms], Credentials] = {}
        self._attempts: dict[SignInTarget, LoginAttempt] = {}
        self._tasks = TaskSet("sign-ins")
        self._probe_lock = asyncio.Lock()

    def credentials(self, definition: Definition) -> Credentials | None:
        """Return the credentials of a server, or None if it has no sign-in. Raise if its settings are invalid."""
        terms = find_terms(definition)
        if terms is None:
            return None
        subject = SignInTarget(definition.name, definition.url)
        if (credentials := self._credentials.get((subject, terms))) is None:
            credentials = self._credentials[subject, terms] = Credentials(subject, terms, self._grants, self._send)
        return credentials

    def is_sign_in_required(self, definition: Definition) -> bool:
        """Return whether a server requires a sign-in, or more rights than a sign-in has granted."""
        credentials = self.credentials(definition)
        return credentials is not None and credentials.last_challenge is not None

    def sign_in_error(
        self, definition: Definition, error: RookeryError, challenge: str = "", *, connected: bool = False
    ) -> UserActionRequired:
        """Return the error for a server that refused a request, with what its user can do."""
        credentials = self.credentials(definition)
        if credentials is None:
            return token_required(error.message)
        if credentials.last_challenge is None:
            credentials.last_challenge = AuthChallenge(401, challenge)
        # A server that was connected without a sign-in requires one for this request only; the rest can still be used.
        whole = not connected or credentials.grant is not None
        if credentials.registrable is False:
            return client_required(error.message, CLIENT_REGISTRATION_HELP, blocks_server=whole)
        if credentials.registrable is None and credentials.grant is None:
            credentials.registrable = True
            self._tasks.start(self._probe_in_background(credentials), "look")
        more = credentials.grant is not None and credentials.last_challenge.status == 403
        return sign_in_required(definition.name, error.message, more_rights=more, blocks_server=whole)

    async def close(self) -> None:
        await self._tasks.close()
        for attempt in self._attempts.values():
            await attempt.cancel("the daemon is stopping")
        for credentials in self._credentials.values():
            await credentials.close()

    # Operations of the owner

    async def login(self, definition: Definition, seconds: float = LOGIN_SECONDS) -> LoginAttempt:
        """Start a login, and end one that is running already."""
        credentials = self._require_credentials(definition)
        # In a loop, because another login may start meanwhile.
        while (previous := self._attempts.pop(credentials.target, None)) is not None:
            await previous.cancel("another sign-in to the same server was started")

        def on_granted(outcome: GrantResult) -> None:
            credentials.set_grant(outcome.grant)
            self._notify(credentials.target, keep_connection=True)

        request = self._build_request(credentials, "login", seconds)
        self._attempts[credentials.target] = attempt = LoginAttempt(
            HelperProcess(self._spawner, self._folder, self._proxies),
            request,
            on_granted,
            lambda verdict, why: self.on_ended(credentials.target, verdict, why),
        )
        return attempt

    def attempt(self, definition: Definition) -> LoginAttempt:
        """Return the login that is running, or the last one."""
        attempt = self._attempts.get(SignInTarget(definition.name, definition.url))
        if attempt is None:
            message = f'no sign-in to MCP server "{definition.name}" is running'
            raise RookeryError("invalid-input", message, f"start one: rookery mcp login {definition.name}")
        return attempt

    async def cancel_login(self, definition: Definition) -> None:
        """Cancel the login that is running, if any."""
        if (attempt := self._attempts.pop(SignInTarget(definition.name, definition.url), None)) is not None:
            await attempt.cancel("the sign-in was cancelled")

    async def logout(self, definition: Definition) -> tuple[bool, bool]:
        """Remove a sign-in. Return whether there was one, and whether its issuer revoked the tokens."""
        credentials = self._require_credentials(definition)
        await self.cancel_login(definition)
        grant = credentials.grant
        if grant is None:
            return False, False
        request = self._build_request(credentials, "revoke")
        # Removed here first: even if the revocation fails, the tokens are not used any more.
        credentials.remove_grant()
        self.on_ended(credentials.target, "removed", "")
        self._notify(credentials.target, keep_connection=False)
        try:
            outcome = await self._send(request)
        except RookeryError:
            return True, False
        return True, getattr(outcome, "revoked", False)

    async def probe(self, definition: Definition, on_message: MessageCallback) -> ProbeResult:
        """Check how a login would go, step by step, without asking a person or registering a client."""
        credentials = self._require_credentials(definition)
        outcome = await self._send(self._build_request(credentials, "look"), on_message)
        assert isinstance(outcome, ProbeResult)
        self._record_probe(credentials, outcome)
        return outcome

    def find_issuer(self, definition: Definition) -> str | None:
        """Return the issuer of the token that is used for a server, or None if there is none."""
        credentials = self.credentials(definition)
        return credentials.grant.issuer if credentials is not None and credentials.grant is not None else None

    def _notify(self, target: SignInTarget, *, keep_connection: bool) -> None:
        for credentials in self._credentials.values():
            if credentials.target == target:
                credentials.reload()
        self.on_changed(target, keep_connection)

    # Helper requests

    def _require_credentials(self, definition: Definition) -> Credentials:
        credentials = self.credentials(definition)
        if credentials is None:
            why = "is a local program" if definition.kind == "local" else "has its own credentials, or oauth is false"
            message = f'MCP server "{definition.name}" needs no sign-in: it {why}'
            raise RookeryError("invalid-input", message, "no action is needed")
        return credentials

    def _build_request(self, credentials: Credentials, mode: HelperMode, seconds: float = 0.0) -> HelperRequest:
        demand = credentials.last_challenge or AuthChallenge()
        return HelperRequest(
            mode=mode,
            url=credentials.target.url,
            status=demand.status,
            challenge=demand.challenge,
            terms=credentials.terms,
            grant=credentials.grant,
            seconds=seconds,
        )

    async def _send(self, request: HelperRequest, on_message: MessageCallback = lambda message: None) -> Outcome:
        return await HelperProcess(self._spawner, self._folder, self._proxies).run(request, on_message)

    async def _probe_in_background(self, credentials: Credentials) -> None:
        """Check whether a client can be registered, so that the user knows before a login fails."""
        try:
            async with self._probe_lock:  # one at a time, because nobody waits for them
                outcome = await self._send(self._build_request(credentials, "look"))
        except RookeryError:
            return
        if isinstance(outcome, ProbeResult):
            self._record_probe(credentials, outcome)

    def _record_probe(self, credentials: Credentials, result: ProbeResult) -> None:
        before, credentials.registrable = credentials.registrable, result.registrable
        if before is not result.registrable and credentials.grant is None:
            self._notify(credentials.target, keep_connection=True)
