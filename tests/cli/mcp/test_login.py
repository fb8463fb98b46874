"""`rookery mcp login` and `logout`, as a person runs them."""

import ast
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from rookery.system.process.launch import open_browser
from tests.cli.mcp.test_group import define
from tests.support.cli.user import at_a_terminal, user, user_environment
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery, wait_dead
from tests.support.mcp.caller import HANDSHAKE
from tests.support.mcp.oauth import Issuer, browse, start_oauth_servers
from tests.support.mcp.remote_server import Remote
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("hub.cli.verbs", "hub.signin.flow")]

BROWSER = """
import sys, urllib.request
assert len(sys.argv) == 2
urllib.request.urlopen(sys.argv[1]).read()
"""


@requirement("hub.signin.tokens")
async def test_s1_a_person_signs_in_with_a_browser_and_out_again_and_an_agent_does_neither(
    daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "browser.py").write_text(BROWSER)
    env = {"BROWSER": f"{sys.executable} {tmp_path / 'browser.py'}"}
    async with start_oauth_servers(Remote(HANDSHAKE), Issuer()) as estate:
        define(far={"url": estate.url})
        done = await asyncio.to_thread(rookery, "mcp", "login", "far", env=as_child(daemon))
        assert done.returncode == 4 and "was started by Rookery" in done.stderr
        assert estate.issuer.asked == []
        done = await asyncio.to_thread(user, "mcp", "login", "far", env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"signed in to far at {estate.issuer.url}; connected, 2 tools\n"
        assert f"sign in at {estate.issuer.url.removeprefix('http://')}:" in done.stderr
        called = await asyncio.to_thread(user, "mcp", "call", "far", "echo", "a=1")
        assert called.returncode == 0 and '"a": 1' in called.stdout.replace("\\", "")
        # What debug tells has no secret in it.
        debugged = await asyncio.to_thread(user, "mcp", "debug", "far")
        assert f"with a token from {estate.issuer.url}" in debugged.stdout
        assert not any(token in debugged.stdout for token in estate.issuer.tokens)
        log = (daemon.state / "logs" / "daemon.jsonl").read_text()
        assert not any(token in log for token in estate.issuer.tokens)
        done = await asyncio.to_thread(rookery, "mcp", "logout", "far", env=as_child(daemon))
        assert done.returncode == 4
        assert (await asyncio.to_thread(user, "mcp", "logout", "far")).stdout == "signed out of far\n"
        assert estate.issuer.tokens == {}
        again = await asyncio.to_thread(user, "mcp", "logout", "far", "--json")
        assert json.loads(again.stdout) == {"name": "far", "removed": False, "revoked": False}
        debugged = await asyncio.to_thread(user, "mcp", "debug", "far")
        assert debugged.returncode == 1 and f"{estate.issuer.url} would ask you" in debugged.stdout


@requirement("hub.signin.addresses")
async def test_over_ssh_the_final_url_of_the_browser_is_pasted_within_the_timeout(daemon: Daemon) -> None:
    async with start_oauth_servers(Remote(HANDSHAKE), Issuer()) as estate, aiohttp.ClientSession() as http:
        define(far={"url": estate.url})
        done = await asyncio.to_thread(user, "mcp", "login", "far", "--no-browser", "--timeout", "1")
        assert done.returncode == 124 and "nobody signed in within 1 s" in done.stderr
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(estate.issuer.registered[0]["redirect_uris"][0])
        with at_a_terminal("mcp", "login", "far", "--no-browser") as person:
            asked = await asyncio.to_thread(person.reads, "paste its final URL:")
            back = await browse(http, next(line.strip() for line in asked.splitlines() if "/authorize?" in line))
            person.types("http://127.0.0.1:1/callback?code=x&state=y\n")
            await asyncio.to_thread(person.reads, "cannot be used")
            person.types(f"{back}\n")
            assert await asyncio.to_thread(person.ends) == 0
            assert "signed in to far" in person.text


async def test_what_a_script_reads_is_not_taken_for_an_address_that_was_pasted(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "browser.py").write_text(BROWSER)
    async with start_oauth_servers(Remote(HANDSHAKE), Issuer()) as estate:
        define(far={"url": estate.url})
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-c", '"$0" mcp login far && cat', str(ROOKERY)],
            env=user_environment({"BROWSER": f"{sys.executable} {tmp_path / 'browser.py'}"}),
            cwd=os.environ["HOME"],
            input="the script's own\n",
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1:] == ["the script's own"]
        assert "cannot be used" not in done.stderr and "paste" not in done.stderr


def test_s7_only_addresses_of_the_web_are_opened_and_no_shell_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    script = "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr([os.getpid(), *sys.argv[2:]]))"
    monkeypatch.setenv("BROWSER", f'{sys.executable} -c "{script}" {told}')
    for url in ("file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "--help", ""):
        assert not open_browser(url)
    url = f"https://a.example/?$(touch {tmp_path}/shell)&`id`;x"
    os.mkfifo(told)
    assert open_browser(url)
    pid, *words = ast.literal_eval(told.read_text())
    assert words == [url]
    wait_dead(pid)
    assert not (tmp_path / "shell").exists()
    monkeypatch.setenv("BROWSER", "/nowhere/at-all")
    assert not open_browser(url)
    monkeypatch.delenv("BROWSER")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        assert not open_browser(url)
