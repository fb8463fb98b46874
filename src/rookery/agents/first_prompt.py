"""The first prompt of a workspace: stored until it is sent, so that it survives a crash of the daemon.

It is sent exactly once, even if the response is lost after OpenCode has accepted it: its session carries a key and its
message an id that are stored before anything is sent. A message that OpenCode has begun to answer is not sent again;
before that, sending it again changes nothing.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rookery.agents.opencode.api import AgentClient, new_message_id
from rookery.agents.opencode.environment import FREE_ADDRESS, FREE_PROVIDER, is_proxied, may_have_provider
from rookery.agents.opencode.process import read_last_lines
from rookery.agents.opencode.project_config import ParseJson
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain, remove_file, write_secret
from rookery.system.ids import new_id
from rookery.system.network import explain_unreachable
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.metadata import rookery_folder
from rookery.workspaces.model import Workspace
from rookery.workspaces.prepare import setup_log_path

MAX_PROMPT_BYTES = 1_000_000
NO_PROVIDER = "no-provider"
_SIGN_IN_HINT = "sign in to one: rookery agent login (opencode auth login)"
# The key in a session's metadata that marks the session of a first prompt.
_METADATA_KEY = "rookery"
_NEWEST_MESSAGES = 20
_LOG_BYTES = 16_384
_LOG_LINES = 100


def check(prompt: str | None) -> None:
    """Raise RookeryError if the prompt is empty or too long; None is accepted."""
    if prompt is not None and not prompt.strip():
        raise RookeryError("invalid-input", "the prompt is empty", "describe the task, or omit the prompt")
    if prompt is not None and len(prompt.encode("utf-8", "surrogatepass")) > MAX_PROMPT_BYTES:
        raise RookeryError("invalid-input", f"the prompt is longer than {MAX_PROMPT_BYTES} bytes", "put it into a file")


def save(git_folder: Path, prompt: str) -> None:
    """Save the prompt until it is sent. `git_folder` is the workspace's git folder."""
    _prompt_file(git_folder).parent.mkdir(exist_ok=True)
    write_secret(_prompt_file(git_folder), prompt.encode("utf-8", "replace"))


def load(git_folder: Path) -> str | None:
    """Return the saved prompt, or None if there is none."""
    with contextlib.suppress(OSError):
        return read_plain(_prompt_file(git_folder), MAX_PROMPT_BYTES).decode("utf-8", "replace")
    return None


def delete(git_folder: Path) -> None:
    """Delete the saved prompt and the ids that it was sent with."""
    remove_file(_prompt_file(git_folder))
    remove_file(_delivery_file(git_folder))


class SentPrompt(msgspec.Struct, frozen=True):
    """Result of sending a first prompt.

    `only_free`: nobody is signed in, so only models that need no login can answer, if they can be reached.
    `answered`: OpenCode already had the message, and has begun to answer it.
    """

    session: str
    only_free: bool
    answered: bool


class PromptDelivery(msgspec.Struct, frozen=True):
    """The ids under which OpenCode knows a prompt: `key` marks its session, `message` is the id of the message."""

    key: str
    message: str


async def send(
    client: AgentClient, workspace: Workspace, git_folder: Path, prompt: str, *, proxied: bool = False
) -> SentPrompt:
    """Send the prompt in a session of its own.

    If the preparation of the workspace failed, the message says so and contains the end of the log. Raise RookeryError
    if the prompt may not have been sent; then call this again. `proxied`: the agent reaches models through a proxy.
    """
    only_free = await require_provider(client, proxied=proxied)
    delivery = _load_or_create_delivery(git_folder)
    session = await _find_or_create_session(client, delivery.key)
    answered = await _is_answered(client, session, delivery.message)
    if not answered:
        await fault_point("prompt.session")
        await client.prompt(session, _append_setup_log(prompt, workspace, git_folder), message=delivery.message)
    await fault_point("prompt.accepted")
    return SentPrompt(session, only_free, answered)


async def _find_or_create_session(client: AgentClient, key: str) -> str:
    """Return the id of the prompt's session; create the session if there is none."""
    sessions = [session for session in await client.sessions() if (session.metadata or {}).get(_METADATA_KEY) == key]
    if not sessions:
        return (await client.create_session(metadata={_METADATA_KEY: key})).id
    # A lost response may have left several sessions. Any of them will do, but always the same one.
    chosen, *others = sorted(session.id for session in sessions)
    for other in others:
        if not await client.messages(other, 1):
            await client.delete_session(other)
    return chosen


async def _is_answered(client: AgentClient, session: str, message: str) -> bool:
    """Return whether OpenCode has the message and has begun to answer it."""
    newest = await client.messages(session, _NEWEST_MESSAGES)
    return any(reply.info.role == "assistant" and reply.info.parent == message for reply in newest)


def _load_or_create_delivery(git_folder: Path) -> PromptDelivery:
    """Return the ids that the prompt of this workspace is sent with, the same ones each time."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_plain(_delivery_file(git_folder), MAX_PROMPT_BYTES), type=PromptDelivery)
    delivery = PromptDelivery(new_id(), new_message_id(SYSTEM_CLOCK.wall() * 1000))
    write_secret(_delivery_file(git_folder), msgspec.json.encode(delivery))
    return delivery


async def require_provider(client: AgentClient, *, proxied: bool = False) -> bool:
    """Raise RookeryError if no model could answer: OpenCode itself accepts any prompt and fails later.

    Return whether there are only models that need no login.
    """
    offered = await client.providers()
    usable = [provider for provider in offered.providers if provider.models]
    if not usable:
        raise RookeryError(NO_PROVIDER, "OpenCode has no usable model provider", _SIGN_IN_HINT)
    if [provider.id for provider in usable] != [FREE_PROVIDER]:
        return False
    address = "" if proxied else usable[0].address(offered.default.get(FREE_PROVIDER))
    if address and (reason := await explain_unreachable(address)):
        raise _unreachable_error(reason)
    return True


async def foresee_failure(user: Mapping[str, str], workspace: Path, parse_json: ParseJson) -> RookeryError | None:
    """Return why no model will answer, if that is known before OpenCode has started; in doubt None."""
    if is_proxied(user) or await asyncio.to_thread(may_have_provider, user, workspace, parse_json):
        return None
    reason = await explain_unreachable(FREE_ADDRESS)
    return _unreachable_error(reason) if reason else None


def _unreachable_error(why: str) -> RookeryError:
    message = f"no model provider is signed in, and OpenCode's free models cannot be reached: {why}"
    return RookeryError(NO_PROVIDER, message, _SIGN_IN_HINT)


def unanswered_error(why: str) -> RookeryError:
    """Return the error for a prompt that was sent while nobody is signed in, and that no model answers."""
    message = f"no model provider is signed in, and OpenCode's free models do not answer: {why}"
    return RookeryError(NO_PROVIDER, message, _SIGN_IN_HINT)


def _append_setup_log(prompt: str, workspace: Workspace, git_folder: Path) -> str:
    if workspace.state != "failed":
        return prompt
    note = f"This workspace could not be prepared: {workspace.error}"
    if lines := read_last_lines(setup_log_path(git_folder), _LOG_LINES, _LOG_BYTES):
        note += "\n".join(["\n\nThe end of the setup command's log:\n\n```", *lines, "```"])
    return f"{note}\n\n{prompt}"


def _prompt_file(git_folder: Path) -> Path:
    return rookery_folder(git_folder) / "first-prompt"


def _delivery_file(git_folder: Path) -> Path:
    return rookery_folder(git_folder) / "first-prompt.json"
