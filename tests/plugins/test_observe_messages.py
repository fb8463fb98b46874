"""Events for plugins about messages and tools: once, when a message is complete and a tool starts and ends."""

from typing import Any

import msgspec

from rookery.agents.opencode.events import MessageUpdated, PartUpdated, SessionUpdated
from rookery.agents.opencode.records import MessageInfo, MessageTimes
from rookery.plugins.api import MessageEvent, ToolEvent
from tests.support.plugins.agent_events import HIDDEN, ONE, ObservedAgent, names, part


def test_a_message_is_told_once_when_it_is_whole() -> None:
    agent = ObservedAgent()
    agent.renews(ONE)
    user = MessageInfo("msg_1", "user", "ses_1")
    (asked,) = agent.says(MessageUpdated("ses_1", user), part(type="text", text="hello"), MessageUpdated("ses_1", user))
    assert isinstance(asked, MessageEvent) and (asked.role, asked.content) == ("user", "hello")
    reply = MessageInfo("msg_2", "assistant", "ses_1", MessageTimes(1.0))
    text = {"type": "text", "messageID": "msg_2"}
    assert agent.says(MessageUpdated("ses_1", reply), part(**text, id="prt_2", text="go")) == []
    assert agent.says(part(**text, id="prt_2", text="good"), part(**text, id="prt_3", text="bye")) == []
    whole = msgspec.structs.replace(reply, time=MessageTimes(1.0, 2.0))
    (said,) = agent.says(MessageUpdated("ses_1", whole), MessageUpdated("ses_1", whole))
    assert isinstance(said, MessageEvent) and (said.role, said.content) == ("assistant", "good\nbye")


def test_a_tool_is_told_when_it_starts_and_when_it_ends_and_not_while_it_runs() -> None:
    agent = ObservedAgent()
    agent.renews(ONE)

    def tool(status: str, **more: Any) -> PartUpdated:
        return part(type="tool", tool="bash", state={"status": status, "input": {"command": "ls"}, **more})

    told = agent.says(
        tool("pending"), tool("running"), tool("running"), tool("completed", output="a"), tool("completed")
    )
    assert [(one.hook, one.run.tool, one.run.output) for one in told if isinstance(one, ToolEvent)] == [
        ("tool.started", "bash", None),
        ("tool.finished", "bash", "a"),
    ]
    # One that was over before anybody heard of it has still begun.
    at_once = part(id="prt_9", type="tool", tool="read", state={"status": "error", "error": "no such file"})
    assert [one.hook for one in agent.says(at_once, at_once)] == ["tool.started", "tool.finished"]
    assert agent.says(PartUpdated("ses_1", msgspec.Raw(b'{"id": 1}'))) == []


def test_a_tool_run_by_name_belongs_to_its_session_and_its_messages_are_hidden() -> None:
    agent = ObservedAgent()
    agent.renews(ONE)
    said = MessageInfo("msg_1", "assistant", "ses_3", MessageTimes(1.0, 2.0))
    tool = part("ses_3", type="tool", tool="read", callID="call_1", state={"status": "completed", "output": "a"})
    told = agent.says(SessionUpdated(HIDDEN), MessageUpdated("ses_3", said), part("ses_3", type="text", text="x"), tool)
    assert names(told) == [("tool.started", "ses_1"), ("tool.finished", "ses_1")]
    assert {(one.run.origin, one.run.session_id) for one in told if isinstance(one, ToolEvent)} == {
        ("execute_tool", "ses_1")
    }


def test_what_nobody_wants_to_know_of_messages_is_not_even_read() -> None:
    agent = ObservedAgent(wanted=set())
    agent.renews(ONE)
    assert agent.says(PartUpdated("ses_1", msgspec.Raw(b"no JSON at all"))) == []
