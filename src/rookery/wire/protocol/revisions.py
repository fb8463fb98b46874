"""The revisions of MCP, and the methods of each one.

A test compares the tables with the published schema.
"""

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
ALL = HANDSHAKE + MODERN
LATEST_HANDSHAKE = HANDSHAKE[-1]
LATEST = MODERN[-1]

# The only revision in which one body may contain several messages.
BATCH_REVISIONS = frozenset({"2025-03-26"})

# Keys of `_meta` that the modern revision reserves.
META = "io.modelcontextprotocol/"
META_VERSION = META + "protocolVersion"
META_CLIENT = META + "clientInfo"
META_CAPABILITIES = META + "clientCapabilities"
META_LOG_LEVEL = META + "logLevel"
META_SERVER = META + "serverInfo"
META_SUBSCRIPTION = META + "subscriptionId"

_BOTH = frozenset(
    {
        "completion/complete",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "tools/call",
        "tools/list",
    }
)
ONLY_HANDSHAKE = frozenset({"initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"})
ONLY_MODERN = frozenset({"server/discover", "subscriptions/listen"})
CLIENT_REQUESTS = dict.fromkeys(HANDSHAKE, _BOTH | ONLY_HANDSHAKE) | dict.fromkeys(MODERN, _BOTH | ONLY_MODERN)

# Methods whose results state how long, and for whom, they may be cached.
CACHEABLE_METHODS = frozenset(
    {"prompts/list", "resources/list", "resources/read", "resources/templates/list", "server/discover", "tools/list"}
)
# Requests that may get the result "input required".
INPUT_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
# The parameter that the header Mcp-Name repeats.
NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# The capability that a client must have announced before it is sent a request of this method.
REQUIRED_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
