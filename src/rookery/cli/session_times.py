"""Moments, as people read and write them."""

import click

# In milliseconds.
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def clock(moment: float | None) -> str:
    """A moment in milliseconds, in the time of this place."""
    if not moment:
        return ""
    from datetime import datetime

    found = datetime.fromtimestamp(moment / 1000).astimezone()
    return found.strftime("%Y-%m-%d %H:%M:%S")


def lasted(start: float | None, end: float | None) -> str:
    return f"{(end - start) / 1000:.1f} s" if start is not None and end is not None else ""


def _moment(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """So many seconds, minutes or hours ago, or milliseconds since the epoch; answered in milliseconds."""
    if text is None:
        return None
    try:
        if text[-1:] not in _UNITS:
            return float(text)
        ago = float(text[:-1]) * _UNITS[text[-1]]
    except ValueError:
        told = f"{text!r} is neither a time ago, such as 30s, 5m or 2h, nor milliseconds since the epoch"
        raise click.BadParameter(told, context, parameter) from None
    from rookery.system.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.wall() * 1000 - ago


since = click.option("--since", callback=_moment, metavar="WHEN", help="A time ago, such as 30s, 5m or 2h.")


def as_query(moment: float | None) -> str | None:
    return None if moment is None else repr(moment)
