"""Kinds of values that settings of many tables have."""

from typing import Annotated

from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]
