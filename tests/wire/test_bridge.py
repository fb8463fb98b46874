"""The state that the bridge keeps, and what it sends to a new daemon and to the client."""

import json
from typing import Any

from rookery.wire.bridge import Bridge
from rookery.wire.protocol.messages import CONNECTION_CLOSED, WireError, decode_messages


def message(method: str, id_: int | str | None = None, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id_ is None else {"id": id_})


def says(bridge: Bridge, *messages: dict[str, Any]) -> bool:
    """The client says it; whether all of it is for the daemon."""
    taken = [bridge.on_client_messages(decode_messages(json.dumps(one).encode())) for one in messages]
    return all(taken)


def hears(bridge: Bridge, one: dict[str, Any]) -> list[Any]:
    return [json.loads(data) for data in bridge.on_daemon_frame(json.dumps({"jsonrpc": "2.0", **one}).encode())]


def known() -> Bridge:
    """One whose client has said hello, and was answered."""
    bridge = Bridge()
    assert says(bridge, message("initialize", 0, clientInfo={"name": "it", "version": 12345678901234567890}))
    assert hears(bridge, {"id": 0, "result": {"capabilities": {}}})
    assert says(bridge, message("notifications/initialized"))
    return bridge


def test_a_new_daemon_hears_what_the_client_said_at_first() -> None:
    bridge = known()
    assert bridge.on_daemon_lost() == []
    hello, initialized = (json.loads(data) for data in bridge.make_restore_messages())
    assert hello["method"] == "initialize"
    assert hello["params"] == {"clientInfo": {"name": "it", "version": 12345678901234567890}}
    assert hello["id"] not in (0, 1)
    assert initialized["method"] == "notifications/initialized"


def test_the_bridge_keeps_the_result_of_a_restore_and_sends_list_changed() -> None:
    bridge = known()
    bridge.on_daemon_lost()
    hello = json.loads(bridge.make_restore_messages()[0])
    can = {"tools": {"listChanged": True}, "prompts": {}, "logging": {}}
    told = hears(bridge, {"id": hello["id"], "result": {"capabilities": can}})
    assert [one["method"] for one in told] == ["notifications/tools/list_changed"]


def test_requests_under_way_end_as_errors_with_the_daemon() -> None:
    bridge = known()
    says(bridge, message("tools/call", 7, name="x"), message("tools/list", "a"), message("ping", 9))
    hears(bridge, {"id": 9, "result": {}})
    told = [json.loads(data) for data in bridge.on_daemon_lost()]
    assert [(one["id"], one["error"]["code"]) for one in told] == [(7, CONNECTION_CLOSED), ("a", CONNECTION_CLOSED)]
    assert bridge.on_daemon_lost() == []


def test_a_cancelled_request_gets_no_error() -> None:
    bridge = known()
    says(bridge, message("tools/call", 0, name="x"), message("notifications/cancelled", requestId=0))
    assert bridge.on_daemon_lost() == []


def test_a_handshake_that_was_not_answered_is_said_again_as_the_clients_own() -> None:
    bridge = Bridge()
    says(bridge, message("initialize", 0, protocolVersion="2025-06-18"))
    assert bridge.on_daemon_lost() == []
    assert [json.loads(data) for data in bridge.make_restore_messages()] == [
        message("initialize", 0, protocolVersion="2025-06-18"),
    ]
    assert hears(bridge, {"id": 0, "result": {}}) == [{"jsonrpc": "2.0", "id": 0, "result": {}}]


def test_log_level_and_subscriptions_are_set_up_again() -> None:
    bridge = known()
    says(bridge, message("logging/setLevel", 1, level="debug"))
    for number, (method, uri) in enumerate([("subscribe", "a:b"), ("subscribe", "c:d"), ("unsubscribe", "a:b")], 2):
        says(bridge, message(f"resources/{method}", number, uri=uri))
    says(bridge, message("resources/subscribe", 5, uri="no:such"))
    for id_ in range(1, 5):
        hears(bridge, {"id": id_, "result": {}})
    hears(bridge, {"id": 5, "error": {"code": -32602, "message": "no"}})
    bridge.on_daemon_lost()
    again = [json.loads(data) for data in bridge.make_restore_messages()[2:]]
    assert [(one["method"], one["params"]) for one in again] == [
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "c:d"}),
    ]
    assert all(hears(bridge, {"id": one["id"], "result": {}}) == [] for one in again)


def test_an_answer_to_a_daemon_that_is_gone_does_not_reach_the_next_one() -> None:
    bridge = known()
    hears(bridge, message("sampling/createMessage", 1))
    told = [json.loads(data) for data in bridge.on_daemon_lost()]
    assert [(one["method"], one["params"]["requestId"]) for one in told] == [("notifications/cancelled", 1)]
    assert not says(bridge, {"jsonrpc": "2.0", "id": 1, "result": {}})
    hears(bridge, message("sampling/createMessage", 1))
    assert says(bridge, {"jsonrpc": "2.0", "id": 1, "result": {}})


def test_where_no_daemon_can_be_reached_every_request_is_answered_so() -> None:
    bridge = Bridge()
    says(bridge, message("initialize", 0))
    told = [json.loads(data) for data in bridge.fail_pending(WireError(CONNECTION_CLOSED, "no daemon"))]
    assert [(one["id"], one["error"]["message"]) for one in told] == [(0, "no daemon")]
    assert bridge.make_restore_messages() == []


def test_a_modern_client_has_no_session_that_a_new_daemon_would_have_to_know() -> None:
    bridge = Bridge()
    says(bridge, message("server/discover", 1), message("tools/list", 2))
    assert len(bridge.on_daemon_lost()) == 2
    assert bridge.make_restore_messages() == []
