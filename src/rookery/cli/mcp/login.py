"""`rookery mcp login` and `rookery mcp logout`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.mcp.common import ServerClient, find_server_failure, server_options
from rookery.cli.output import visible
from rookery.daemon_client.failure import Failure

# The longest time in which a person can sign in, in seconds.
_LONGEST = 3600

LOGIN_EPILOG = """\b
Examples:
  rookery mcp login github
  rookery mcp login github --no-browser     over ssh: open the URL elsewhere, and paste the final one

The URL is opened in $BROWSER, or in the system's default browser. Tokens are stored in the state folder, and only
you can read them.
"""


@click.command(epilog=LOGIN_EPILOG)
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Do not open a browser; paste the final URL instead.")
@click.option(
    "--timeout", type=click.FloatRange(1, _LONGEST), default=300, help="Maximum seconds to sign in. [default: 300]"
)
@server_options
def login(name: str, no_browser: bool, timeout: float, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Sign in to a server that requires authentication.

    This uses OAuth. It prints a URL, opens it in the browser, and waits until you have signed in there.
    """
    client = ServerClient(everywhere, no_start)
    output.write_note(f"requesting the sign-in URL of {visible(name)} ...")
    sign_in = client.request_server(name, "login", body={"seconds": timeout})
    _write_address(sign_in, opened=not no_browser and _open_address(sign_in["url"]))
    try:
        _accept_pasted(client, name)
        record = client.request_server(name, "login", method="GET", seconds=_LONGEST)
    except KeyboardInterrupt:
        client.request_server(name, "login", method="DELETE")
        raise
    if failure := find_server_failure(record):
        raise failure
    words = f"signed in to {visible(name)} at {visible(record['issuer'])}; {record['status']}, {record['tools']} tools"
    output.write(json.dumps(record) if as_json else words)


@click.command(epilog="\b\nExamples:\n  rookery mcp logout github\n")
@click.argument("name")
@server_options
def logout(name: str, everywhere: bool, as_json: bool, no_start: bool) -> None:
    """Sign out of a server.

    The tokens are revoked if the server supports it.
    """
    result = ServerClient(everywhere, no_start).request_server(name, "logout")
    words = f"signed out of {visible(name)}"
    if not result["removed"]:
        words = f"you were not signed in to {visible(name)}"
    elif not result["revoked"]:
        words += "; its tokens could not be revoked, and stay valid until they expire"
    output.write(json.dumps(result) if as_json else words)


def _write_address(sign_in: dict[str, Any], *, opened: bool) -> None:
    """Show the address. The host that the user would trust comes first, since the server chooses the address."""
    from urllib.parse import urlsplit

    url: str = sign_in["url"]
    output.write_note(f"sign in at {output.paint(visible(urlsplit(url).netloc), 'bold', sys.stderr)}:")
    output.write_note(f"  {visible(url)}")
    output.write_note("the URL was opened in your browser" if opened else "open the URL in a browser")


def _open_address(url: str) -> bool:
    from rookery.system.process.launch import open_browser

    return open_browser(url)


def _accept_pasted(client: ServerClient, name: str) -> None:
    """Read pasted addresses in a thread: the browser may be on another machine, where its redirect fails."""
    # If stdin is no terminal, a script may read from it after this command.
    if not sys.stdin or sys.stdin.closed or not sys.stdin.isatty():
        return
    output.write_note("if the browser cannot reach this machine, paste its final URL:")
    import threading

    threading.Thread(target=_send_pasted, args=(client, name, sys.stdin.fileno()), daemon=True).start()


def _send_pasted(client: ServerClient, name: str, fd: int) -> None:
    """Send each pasted line to the daemon.

    Reads from the descriptor: a buffered reader would hold a lock while it waits, and Python needs that lock at exit.
    """
    import os

    rest = b""
    while data := os.read(fd, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            try:
                client.request_server(name, "login/redirect", body={"url": line.decode("utf-8", "replace")})
            except Failure as failure:
                output.write_note(f"{visible(failure.message)} ({visible(failure.remedy)})")
