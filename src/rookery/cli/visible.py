"""Text of strangers, as it may be shown. What does it is loaded on first use: nothing here loads another package."""


def visible(text: str) -> str:
    from rookery.system.visible import visible as shown

    return shown(text)
