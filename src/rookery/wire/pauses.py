"""How long to wait before something that failed is tried again."""

_LONGEST = 60.0


def pause(failures: int) -> float:
    """Seconds, after so many failures in a row: 1, 2, 4 and so on, up to a minute."""
    return min(2.0 ** min(failures - 1, 10), _LONGEST) if failures > 0 else 0.0
