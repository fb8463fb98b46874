"""The prompts of the session toolset: how to test boulder with its tools."""

from collections.abc import Mapping

from rookery.plugins.boulder.messages import MARK
from rookery.toolsets.resources import Completer, Prompt, PromptArgument, read_number

_IDLE_SECONDS = 35.0

_IDLE = f"""\
Test that boulder notices that the session {{session}} is idle and prompts it to continue. Do these steps in order, \
report what each of them showed, and stop at the first that fails.

1. `get_session` with sessionId "{{session}}": it exists. Note the time in milliseconds as `begun`.
2. Read the resource `boulder://state/{{session}}`. If its status is OFF, switch it on with `trigger_plugin_action`: \
pluginName "boulder", action "on", args {{{{"sessionId": "{{session}}"}}}} (only the owner may). Note `iteration`, and \
look at `gates`: "idle" and "cooldown" end by themselves, any other one has to be dealt with first.
3. `send_message` with sessionId "{{session}}" and content "Starting boulder test". The answer must not say that \
everything is done, or boulder has nothing to enforce.
4. Do nothing in the session. `wait_for_toast` with sessionId "{{session}}", pattern "{MARK}" and timeout \
{{milliseconds}} (that is {{seconds}} seconds): `found` has to be true.
5. `get_messages` with sessionId "{{session}}" and since `begun`: one message has to contain "{MARK}".
6. Read `boulder://state/{{session}}` again: `iteration` has to be higher than before, and `lastEnforcement` later \
than `begun`.
7. Put back what you have changed: if you switched it on, `trigger_plugin_action` with action "off" and the same args.

State at the end whether the test has passed. If no toast came, report the `gates` of step 6: they say \
what prevented it."""

_COMPLETION = f"""\
Test that boulder notices when the work of the session {{session}} is complete, and then leaves it alone. Do these \
steps in order, report what each of them showed, and stop at the first that fails.

1. `get_session` with sessionId "{{session}}": it exists.
2. Read the resource `boulder://state/{{session}}`. If its status is OFF, switch it on with `trigger_plugin_action`: \
pluginName "boulder", action "on", args {{{{"sessionId": "{{session}}"}}}} (only the owner may). Note `iteration`, and \
`checks`: they say how completion is decided.
3. `send_message` with sessionId "{{session}}" and content "Finish what is left. If nothing is left, mark every todo \
as completed, and answer with exactly: All tasks are complete."
4. If `checks` names a plan or a just task, see to it that the boxes of the plan are checked (`execute_tool` with tool \
"read") and that the task ends with 0 (`run_just_task`).
5. `wait_for_toast` with sessionId "{{session}}", pattern "{MARK}" and timeout 70000: `found` has to be false.
6. Read `boulder://state/{{session}}` again: `status` has to be COMPLETE, `complete` says why, the gate "complete" is \
among `gates`, and `iteration` is what it was.
7. `send_message` with content "There is one more thing to do." and read the resource once more: `complete` has to be \
null, because somebody has spoken.
8. Put back what you have changed: if you switched it on, `trigger_plugin_action` with action "off" and the same args.

State at the end whether the test has passed, and how completion was decided."""


def session_prompts(complete_session: Completer) -> list[Prompt]:
    """Return the prompts. `complete_session` returns the session ids that start with a text."""
    session = PromptArgument("sessionId", "Session to test", required=True, complete=complete_session)
    return [
        Prompt(
            "test_boulder_idle_detection",
            "Test boulder idle detection",
            _fill_idle,
            [session, PromptArgument("idleTime", "Seconds to wait for idle; 35 if it is left out")],
        ),
        Prompt("test_boulder_completion", "Test boulder completion detection", _fill_completion, [session]),
    ]


def _fill_idle(arguments: Mapping[str, str]) -> str:
    seconds = read_number(arguments, "idleTime", _IDLE_SECONDS)
    return _IDLE.format(session=arguments["sessionId"], seconds=f"{seconds:g}", milliseconds=round(seconds * 1000))


def _fill_completion(arguments: Mapping[str, str]) -> str:
    return _COMPLETION.format(session=arguments["sessionId"])
