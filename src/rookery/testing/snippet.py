"""The smallest OpenCode config that uses a scripted model and no other."""

from typing import Any


def opencode_config(url: str, key: str | None = None) -> dict[str, Any]:
    """For `opencode.json`, or for OPENCODE_CONFIG_CONTENT; `url` is that of the model, which ends in /v1."""
    model = {
        "name": "Scripted",
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 200_000, "output": 8_000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted model",
        # Without a key OpenCode would look for one elsewhere.
        "options": {"baseURL": url, "apiKey": key or "none"},
        "models": {"scripted": model},
    }
    return {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
    }
