"""Which step answers which request."""

import json

import pytest
from hypothesis import given, strategies as st

from rookery.testing.load import parse_script
from rookery.testing.player import NoMatchingStep, Player, Reply
from rookery.testing.script import Script
from tests.support.agents.completions import CompletionAgent, asked, called, result, said, user
from tests.support.requirements import requirement

LOGIN = {
    "name": "login",
    "when": "login",
    "turn": [
        {
            "step": [
                {"say": "I look.", "call": "bash", "with": {"command": "ls"}},
                {"parallel": [{"call": "read", "with": {"n": 1}}, {"call": "read", "with": {"n": 2}}]},
                {"say": "Mended."},
            ]
        },
        {"step": [{"error": 503, "times": 2}, {"call": "bash"}, {"disconnect": True, "times": 1}, {"say": "Tested."}]},
        {"when": "thank", "step": [{"say": "You are welcome."}]},
    ],
}
OTHER = {"turn": [{"step": [{"call": "read"}, {"say": "Read."}]}, {"step": [{"say": "Bye."}]}]}
SCRIPT = parse_script({"conversation": [LOGIN, OTHER]})


def places(replies: list[Reply]) -> list[tuple[int, int | None, int | None]]:
    return [
        (reply.position.conversation, reply.position.turn, reply.position.step) for reply in replies if reply.position
    ]


def refusal(script: Script, *messages: dict[str, object], **more: object) -> NoMatchingStep:
    with pytest.raises(NoMatchingStep) as caught:
        Player(script).reply_to(asked(messages, **more))  # pyright: ignore[reportArgumentType]
    return caught.value


@requirement("kit.model.scripted")
def test_turns_and_their_steps_are_played_in_order() -> None:
    replies = CompletionAgent("ses_1").run(Player(SCRIPT), "Fix the login", "Test it")
    first = [(1, 1, 1), (1, 1, 2), (1, 1, 3)]
    assert places(replies) == [*first, (1, 2, 1), (1, 2, 1), (1, 2, 2), (1, 2, 3), (1, 2, 4)]
    assert (replies[0].text, replies[0].calls[0].arguments) == ("I look.", {"command": "ls"})
    assert [call.arguments for call in replies[1].calls] == [{"n": 1}, {"n": 2}]


def test_a_turn_for_certain_words_is_played_whenever_they_come_and_counts_for_none() -> None:
    replies = CompletionAgent("ses_1").run(Player(SCRIPT), "Fix the login", "thank you", "Test it", "thanks, thank you")
    assert [place[1] for place in places(replies)] == [1, 1, 1, 3, 2, 2, 2, 2, 2, 3]


def test_a_session_has_the_conversation_that_its_first_message_asks_for() -> None:
    player = Player(SCRIPT)
    assert places(CompletionAgent("a").run(player, "Read the login page")) == [(1, 1, 1), (1, 1, 2), (1, 1, 3)]
    assert places(CompletionAgent("b").run(player, "Read it", "the login too")) == [(2, 1, 1), (2, 1, 2), (2, 2, 1)]


def test_a_conversation_can_be_for_the_second_session_whatever_it_says() -> None:
    script = parse_script({"conversation": [OTHER, {"session": 2, "turn": [{"step": [{"say": "Second."}]}]}]})
    player = Player(script)
    assert places(CompletionAgent("a").run(player, "Hi")) == [(1, 1, 1), (1, 1, 2)]
    assert places(CompletionAgent("b").run(player, "Hi")) == [(2, 1, 1)]
    assert places(CompletionAgent("c").run(player, "Hi")) == [(1, 1, 1), (1, 1, 2)]


SESSIONS = {"ses_a": ["Fix the login", "Test it"], "ses_b": ["Read", "Go"], None: ["Fix the login now", "thank you"]}


@requirement("kit.model.scripted")
@given(st.data())
def test_sessions_never_mix_and_another_server_plays_on_at_any_moment(data: st.DataObject) -> None:
    alone = {session: CompletionAgent(session).run(Player(SCRIPT), *texts) for session, texts in SESSIONS.items()}
    agents = {session: CompletionAgent(session) for session in SESSIONS}
    going = {session: agents[session].turns(*texts) for session, texts in SESSIONS.items()}
    requests = {session: next(turns) for session, turns in going.items()}
    player = Player(SCRIPT)
    while requests:
        session = data.draw(st.sampled_from(list(requests)))
        # How often a step has failed is remembered nowhere else, so that this turn sees a single server.
        if not any(request.user_messages[-1] == "Test it" for request in requests.values()) and data.draw(
            st.booleans()
        ):
            player = Player(SCRIPT)
        try:
            requests[session] = going[session].send(player.reply_to(requests[session]))
        except StopIteration:
            del requests[session]
    assert {session: agent.replies for session, agent in agents.items()} == alone
    assert [len(replies) for replies in alone.values()] == [8, 3, 4]


def test_images_of_tool_results_are_not_taken_for_the_users_words() -> None:
    media = {"role": "user", "content": [{"type": "text", "text": "Attached media from tool result:"}]}
    request = asked([user("Read"), called("read"), result("Image read"), media])
    assert Player(SCRIPT).reply_to(request).text == "Read."


def test_parts_of_text_are_one_message() -> None:
    parts = [{"type": "text", "text": "Fix"}, {"type": "image_url"}, {"type": "text", "text": "login"}]
    reply = Player(SCRIPT).reply_to(asked([{"role": "user", "content": parts}]))
    assert reply.position is not None
    assert reply.position.name == "login"


def test_a_session_keeps_its_conversation_when_its_beginning_becomes_a_summary() -> None:
    player = Player(SCRIPT)
    CompletionAgent("ses_1").run(player, "Fix the login")
    reply = player.reply_to(asked([user("What did we do so far?"), said("So far: …"), user("thank you")]))
    assert reply.text == "You are welcome."


@pytest.mark.parametrize(
    ("system", "kind", "text"),
    [
        ("You are a title generator. You output ONLY a thread title.", "title", "one two three four five six"),
        ("You are a context summarization agent.", "summary", "So far: one two three four five six seven"),
        ("You are a helpful assistant.", "step", ""),
    ],
)
@requirement("kit.model.scripted")
def test_titles_and_summaries_are_answered_without_a_step(system: str, kind: str, text: str) -> None:
    prompt = [{"role": "system", "content": system}, user("one two three four five six seven")]
    reply = Player(SCRIPT).reply_to(asked(prompt, tools=()))
    assert (reply.kind, reply.text) == (kind, text)
    assert Player(SCRIPT).reply_to(asked(prompt)).kind == "step"


def test_text_and_arguments_take_up_results_and_the_users_words() -> None:
    steps = [
        {"parallel": [{"call": "a"}, {"call": "b"}]},
        {"call": "c", "with": {"list": ["{{result.1}}", 3], "deep": {"x": "<{{result}}>"}}},
        {"say": "{{user}}: {{result}} {{other}} {{ result }}"},
    ]
    replies = CompletionAgent("s").run(Player(parse_script({"step": steps})), "Go")
    assert replies[1].calls[0].arguments == {"list": ["a did {}", 3], "deep": {"x": "<b did {}>"}}
    assert replies[2].text == f"Go: c did {json.dumps(replies[1].calls[0].arguments)} {{{{other}}}} {{{{ result }}}}"


def test_a_result_that_is_not_there_is_told() -> None:
    error = refusal(parse_script({"step": [{"say": "{{result.2}}"}]}), user("Go"))
    assert str(error) == "conversation 1, turn 1, step 1 refers to {{result.2}}, but there is no such result"


# ---- what the script does not foresee


@requirement("kit.model.face")
def test_a_reply_too_many_names_the_last_step() -> None:
    error = refusal(SCRIPT, user("Read"), called("read"), result("x"), called("read"), result("y"))
    assert 'replied 2 times to "Read"' in str(error)
    assert 'The nearest step is conversation 2, turn 1, step 2 (say "Read.")' in str(error)


@requirement("kit.model.face")
def test_a_message_too_many_names_the_turn_that_is_most_like_it() -> None:
    talk = [user("login"), said("Mended."), user("go"), said("Tested."), user("I want to thank")]
    assert Player(SCRIPT).reply_to(asked(talk)).text == "You are welcome."
    error = refusal(SCRIPT, *talk[:-1], user("tank"))
    assert 'conversation "login" has no turn for user message 3, "tank".' in str(error)
    assert 'The nearest step is conversation "login", turn 3, step 1 (say "You are welcome.")' in str(error)
    assert error.nearest is not None
    assert (error.nearest.conversation, error.nearest.turn, error.nearest.step) == (1, 3, 1)


@requirement("kit.model.face")
def test_a_session_that_no_conversation_is_for_names_the_one_that_is_most_like_it() -> None:
    far = {"session": 9, "turn": [{"step": [{"say": "x"}]}]}
    error = refusal(parse_script({"conversation": [far, LOGIN]}), user("logon"))
    assert 'matches session 1, which begins with "logon".' in str(error)
    assert 'conversation "login", turn 1, step 1, for sessions that begin with "login"' in str(error)
    assert "for session 9" in str(refusal(parse_script({"conversation": [far]}), user("logon")))


def test_a_request_without_a_user_is_told() -> None:
    assert "no user message" in str(refusal(SCRIPT, {"role": "system", "content": "x"}))


@requirement("kit.model.face")
def test_expectations_are_checked_before_a_step() -> None:
    steps = [
        {"call": "a", "expect": "please", "expect_tools": ["bash"], "expect_no_tools": ["webfetch"]},
        {"say": "ok", "expect": ["one", "two"]},
    ]
    script = parse_script({"step": steps})
    assert Player(script).reply_to(asked([user("Go, please")])).calls
    after = [user("Go, please"), called("a"), result("one"), result("and two")]
    assert Player(script).reply_to(asked(after)).text == "ok"
    at = "conversation 1, turn 1, step"
    assert str(refusal(script, user("Go"))) == f'{at} 1 expects "please" in the user\'s message. Received: "Go"'
    assert str(refusal(script, *after[:-1])) == f'{at} 2 expects "two" in the results. Received: "one"'
    missing = refusal(script, user("please"), tools=["read"])
    assert str(missing) == f"{at} 1 expects the tool bash to be offered. Offered: read"
    present = refusal(script, user("please"), tools=["bash", "webfetch"])
    assert str(present) == f"{at} 1 expects the tool webfetch not to be offered, but it is"


def test_another_script_can_be_played_from_now_on() -> None:
    player = Player(SCRIPT)
    agent = CompletionAgent("s")
    agent.run(player, "Read")
    player.script = parse_script({"turn": [{"step": [{"say": "first"}]}, {"step": [{"say": "second"}]}]})
    assert agent.run(player, "Go")[-1].text == "second"
