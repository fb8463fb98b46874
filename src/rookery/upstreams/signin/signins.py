"""All sign-ins of the daemon: who is signed in where, who is just doing so, and what each server asked for."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.upstreams.definition import Definition
from rookery.upstreams.signin.attempt import Attempt
from rookery.upstreams.signin.credentials import Credentials, Demand
from rookery.upstreams.signin.grants import Grants, Subject
from rookery.upstreams.signin.helper import Heard, Helper
from rookery.upstreams.signin.messages import Errand, Granted, Looked, Mode, Outcome, Terms
from rookery.upstreams.signin.metadata import HOW_TO_GIVE_A_CLIENT
from rookery.upstreams.signin.terms import terms_of
from rookery.upstreams.waiting import NotYet, needs_client, needs_sign_in, needs_token

LOGIN_SECONDS = 300.0

# Told of a server whose sign-in is another one now, or of which more is known, and whether its connections can stay.
Changed = Callable[[Subject, bool], None]


class SignIns:
    """Nobody but the owner begins one, and no call waits for one."""

    def __init__(self, folder: Path, spawner: Spawner) -> None:
        self.changed: Changed = lambda subject, stays: None
        self._folder, self._spawner = folder, spawner
        self._grants = Grants(folder / "sign-in")
        self._known: dict[tuple[Subject, Terms], Credentials] = {}
        self._attempts: dict[Subject, Attempt] = {}
        self._tasks = TaskSet("sign-ins")
        self._looking = asyncio.Lock()

    def credentials(self, definition: Definition) -> Credentials | None:
        """None where there is nothing to sign in with or for; raises where what is configured does not fit."""
        terms = terms_of(definition)
        if terms is None:
            return None
        subject = Subject(definition.name, definition.url)
        if (known := self._known.get((subject, terms))) is None:
            known = self._known[subject, terms] = Credentials(subject, terms, self._grants, self._send)
        return known

    def demanded(self, definition: Definition) -> bool:
        """Whether a server has asked for a sign-in, or for more than one has granted."""
        known = self.credentials(definition)
        return known is not None and known.demand is not None

    def refused(
        self, definition: Definition, error: RookeryError, challenge: str = "", *, connected: bool = False
    ) -> NotYet:
        """What a server waits for that refused us, and what its user can do about it."""
        known = self.credentials(definition)
        if known is None:
            return needs_token(error.message)
        if known.demand is None:
            known.demand = Demand(401, challenge)
        # One that let us in without a sign-in wants one for what was asked only; others go on with the rest.
        whole = not connected or known.grant is not None
        if known.registrable is False:
            return needs_client(error.message, HOW_TO_GIVE_A_CLIENT, whole=whole)
        if known.registrable is None and known.grant is None:
            known.registrable = True
            self._tasks.start(self._look_quietly(known), "look")
        more = known.grant is not None and known.demand.status == 403
        return needs_sign_in(definition.name, error.message, more=more, whole=whole)

    async def close(self) -> None:
        await self._tasks.close()
        for attempt in self._attempts.values():
            await attempt.give_up("the daemon stops")
        for known in self._known.values():
            await known.close()

    # ---- what the owner does

    async def login(self, definition: Definition, seconds: float = LOGIN_SECONDS) -> Attempt:
        """Begin one, instead of one that runs already."""
        known = self._signable(definition)
        while (before := self._attempts.pop(known.subject, None)) is not None:  # another may begin meanwhile
            await before.give_up("another sign-in to the same server was begun")

        def taken(outcome: Granted) -> None:
            known.take(outcome.grant)
            self._tell(known.subject, stays=True)

        errand = self._errand(known, "login", seconds)
        self._attempts[known.subject] = made = Attempt(Helper(self._spawner, self._folder), errand, taken)
        return made

    def attempt(self, definition: Definition) -> Attempt:
        """The one that runs, or ran last."""
        found = self._attempts.get(Subject(definition.name, definition.url))
        if found is None:
            told = f'nobody signs in to MCP server "{definition.name}" just now'
            raise RookeryError("invalid-input", told, f"begin it: rookery mcp login {definition.name}")
        return found

    async def give_up(self, definition: Definition) -> None:
        if (found := self._attempts.pop(Subject(definition.name, definition.url), None)) is not None:
            await found.give_up("the sign-in was given up")

    async def logout(self, definition: Definition) -> tuple[bool, bool]:
        """Forget a sign-in; whether there was one, and whether its issuer took the tokens back."""
        known = self._signable(definition)
        await self.give_up(definition)
        grant = known.grant
        if grant is None:
            return False, False
        errand = self._errand(known, "revoke")
        # First here: whatever becomes of the rest, the tokens are used no more.
        known.drop()
        self._tell(known.subject, stays=False)
        try:
            outcome = await self._send(errand)
        except RookeryError:
            return True, False
        return True, getattr(outcome, "revoked", False)

    async def look(self, definition: Definition, heard: Heard) -> Looked:
        """What a login would meet, step by step, without anybody being asked or registered."""
        known = self._signable(definition)
        outcome = await self._send(self._errand(known, "look"), heard)
        assert isinstance(outcome, Looked)
        self._learned(known, outcome)
        return outcome

    def signed_in(self, definition: Definition) -> str | None:
        """The issuer whose token is used for a server; None if there is none."""
        known = self.credentials(definition)
        return known.grant.issuer if known is not None and known.grant is not None else None

    def _tell(self, subject: Subject, *, stays: bool) -> None:
        for known in self._known.values():
            if known.subject == subject:
                known.look_again()
        self.changed(subject, stays)

    # ---- errands

    def _signable(self, definition: Definition) -> Credentials:
        known = self.credentials(definition)
        if known is None:
            why = "is a local program" if definition.kind == "local" else "has its own credentials, or oauth is false"
            told = f'MCP server "{definition.name}" is not signed in to: it {why}'
            raise RookeryError("invalid-input", told, "nothing has to be done")
        return known

    def _errand(self, known: Credentials, mode: Mode, seconds: float = 0.0) -> Errand:
        demand = known.demand or Demand()
        return Errand(
            mode=mode,
            url=known.subject.url,
            status=demand.status,
            challenge=demand.challenge,
            terms=known.terms,
            grant=known.grant,
            seconds=seconds,
        )

    async def _send(self, errand: Errand, heard: Heard = lambda told: None) -> Outcome:
        return await Helper(self._spawner, self._folder).run(errand, heard)

    async def _look_quietly(self, known: Credentials) -> None:
        """Whether a client could be registered, so that its user is told before the login fails."""
        try:
            async with self._looking:  # one after the other: nobody waits for them
                outcome = await self._send(self._errand(known, "look"))
        except RookeryError:
            return
        if isinstance(outcome, Looked):
            self._learned(known, outcome)

    def _learned(self, known: Credentials, found: Looked) -> None:
        before, known.registrable = known.registrable, found.registrable
        if before is not found.registrable and known.grant is None:
            self._tell(known.subject, stays=True)
