"""The fixture of the conformance suite with tools that wait, for tests of concurrent events."""

import asyncio
from collections.abc import Mapping
from typing import Any

from rookery.wire.protocol.provider import Call, report_progress
from tests.conformance.fixture import Fixture, Result, text

WATCHED = "test://watched-resource"

# Tools that need no argument and ask nothing back, and the kinds of content they answer.
PLAIN_TOOLS = {
    "test_trigger_tool_change": ["text"],
    "test_trigger_prompt_change": ["text"],
    "test_simple_text": ["text"],
    "test_image_content": ["image"],
    "test_audio_content": ["audio"],
    "test_embedded_resource": ["resource"],
    "test_multiple_content_types": ["text", "image", "resource"],
    "test_tool_with_logging": ["text"],
    "test_logging_tool": ["text"],
    "test_tool_with_progress": ["text"],
    "test_error_handling": ["text"],
    "json_schema_2020_12_tool": ["text"],
    "test_header_tool": ["text"],
}


class Busy(Fixture):
    def __init__(self) -> None:
        super().__init__()
        self.cancelled = 0
        self._changed = asyncio.Condition()
        self._met: list[str] = []
        for tool in (self.hang, self.count_cancelled, self.meet, self.touch):
            self._tools[tool.__name__] = tool

    async def hang(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Says that it has begun, and never ends."""
        await report_progress(call, 1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            async with self._changed:
                self._changed.notify_all()
        raise AssertionError

    async def count_cancelled(self, call: Call, given: Mapping[str, Any]) -> Result:
        """How many calls of `hang` were cancelled, once there are so many."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.cancelled >= given["least"])
        return text(str(self.cancelled))

    async def meet(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers its word when two are here at the same time."""
        async with self._changed:
            self._met.append(given["word"])
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._met) >= 2)
        return text(given["word"])

    async def touch(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Changes the watched resource."""
        self.changes.resource_updated(WATCHED)
        return text("touched")
