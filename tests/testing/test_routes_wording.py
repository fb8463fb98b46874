"""A final error contains no word that makes OpenCode retry or compact the session."""

import pytest

from rookery.testing.routes import remove_retry_words

# What OpenCode 1.18.33 looks for in the text of errors, a phrase of each kind.
ALARMING = [
    *("HTTP 429", "error 500", "502", "code=503;", "504", "524", "529"),
    *("rate increased too quickly", "rate limit", "rate-limit", "rate_limit_error", "Too Many Requests"),
    *("Overloaded", "service unavailable", "service_unavailable", "unavailable", "exhausted", "resource_exhausted"),
    *("internal error", "internal_error", "Internal Server Error", "server error", "server_error", "server-error"),
    *("provider returned error", "provider_returned_error", "terminated", "fetch failed", "failed to fetch"),
    *("network error", "network_error", "upstream connect", "connection error", "connection refused"),
    *("connection lost", "socket connection was closed", "socket hang up", "reset before headers", "getaddrinfo"),
    *("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "timeout", "request timed out"),
    *("stream time out", "try your request again", "retry your request", "try again later", "try again in 5"),
    *("currently at capacity", "FreeUsageLimitError", "prompt is too long", "request_too_large", "too many tokens"),
    *("exceeds the context window", "maximum context length is 5 tokens", "reduce the length of the messages"),
    *("exceeds the limit of 3", "context_length_exceeded", "request entity too large", "token limit exceeded"),
]


@pytest.mark.parametrize("phrase", ALARMING)
def test_what_sounds_like_a_passing_error_is_left_out(phrase: str) -> None:
    told = remove_retry_words(f'user message 2, "{phrase}". The nearest step is turn 1')
    assert phrase not in told
    assert "…" in told
    assert told.startswith('user message 2, "')
    assert told.endswith('". The nearest step is turn 1')


def test_other_words_stay() -> None:
    text = (
        "the script has no reply to this request: turn 1 has no more steps: "
        'the model has replied 3 times to "generate a rate"'
    )
    assert remove_retry_words(text) == text
