"""`rookery mcp login` and `rookery mcp logout`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.mcp_where import Where, broken, common
from rookery.cli.visible import visible

LOGIN_EPILOG = """\b
Examples:
  rookery mcp login github
  rookery mcp login github --no-browser     over ssh: open the address elsewhere, and paste where it ends

The address is opened in $BROWSER, or in what the system uses. Tokens stay in the state folder, for you only.
"""


@click.command(epilog=LOGIN_EPILOG)
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Open nothing; the address that the browser ends at can be pasted.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=300, help="Seconds to sign in (300).")
@common
def login(name: str, no_browser: bool, timeout: float, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Sign in to a server that wants to know who you are.

    That is done with OAuth. Prints an address, opens it in the browser, and waits until you have signed in there.
    """
    where = Where(everywhere, no_start)
    output.narrate(f"asking {visible(name)} where to sign in ...")
    told = where.ask_of(name, "login", body={"seconds": timeout})
    _show(told, opened=not no_browser and _open(told["url"]))
    try:
        _listen(where, name)
        record = where.ask_of(name, "login", method="GET")
    except KeyboardInterrupt:
        where.ask_of(name, "login", method="DELETE")
        raise
    if failure := broken(record):
        raise failure
    words = f"signed in to {visible(name)} at {visible(record['issuer'])}; {record['status']}, {record['tools']} tools"
    output.answer(json.dumps(record) if as_json else words)


@click.command(epilog="\b\nExamples:\n  rookery mcp logout github\n")
@click.argument("name")
@common
def logout(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Forget the sign-in to a server.

    Its tokens are given back, if it takes them.
    """
    told = Where(everywhere, no_start).ask_of(name, "logout")
    words = f"signed out of {visible(name)}"
    if not told["removed"]:
        words = f"{visible(name)} was not signed in to"
    elif not told["revoked"]:
        words += "; its tokens could not be given back, and end by themselves"
    output.answer(json.dumps(told) if as_json else words)


def _show(told: dict[str, Any], *, opened: bool) -> None:
    """Whom the user is about to trust stands first: a server chooses where to send people."""
    from urllib.parse import urlsplit

    url: str = told["url"]
    output.narrate(f"sign in at {output.paint(visible(urlsplit(url).netloc), 'bold', sys.stderr)}:")
    output.narrate(f"  {visible(url)}")
    output.narrate("it was opened in your browser" if opened else "open it in a browser")


def _open(url: str) -> bool:
    from rookery.system.browser import open_browser

    return open_browser(url)


def _listen(where: Where, name: str) -> None:
    """Take what is pasted while the browser is waited for: it may be on another machine, and end nowhere."""
    # What is no terminal may be what a script reads from after us.
    if not sys.stdin or sys.stdin.closed or not sys.stdin.isatty():
        return
    output.narrate("if the browser cannot come back here, paste the address that it ends at:")
    import threading

    threading.Thread(target=_take_pasted, args=(where, name, sys.stdin.fileno()), daemon=True).start()


def _take_pasted(where: Where, name: str, handle: int) -> None:
    """From the descriptor itself: a reader that waits for a line holds a lock which Python wants when it ends."""
    import os

    rest = b""
    while data := os.read(handle, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            try:
                where.ask_of(name, "login/redirect", body={"url": line.decode("utf-8", "replace")})
            except Failure as failure:
                output.narrate(f"{visible(failure.message)} ({visible(failure.remedy)})")
