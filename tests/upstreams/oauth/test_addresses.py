"""Which addresses that a server names during a sign-in are used."""

import socket

import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.addresses import AddressRefused, AddressRules, Resolver, classify_address, resolve
from rookery.wire.http_client.proxy import Proxy, ProxySettings
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("hub.signin.addresses")]

KINDS = {
    "93.184.216.34": "public",
    "2606:2800:220:1:248:1893:25c8:1946": "public",
    "127.0.0.1": "loopback",
    "127.8.9.10": "loopback",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "64:ff9b::7f00:1": "loopback",
    "2002:7f00:1::": "loopback",
    "169.254.169.254": "link-local",
    "::ffff:169.254.169.254": "link-local",
    "64:ff9b::a9fe:a9fe": "link-local",
    "fe80::1%eth0": "link-local",
    "10.0.0.1": "private",
    "172.16.5.4": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "private",
    "fd00:ec2::254": "private",
    "fec0::1": "private",
    "::ffff:10.1.2.3": "private",
    "0.0.0.0": "reserved",
    "::": "reserved",
    "224.0.0.1": "reserved",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
}


def names(**known: str) -> Resolver:
    """A resolver that knows some hosts, and numbers as the system does."""

    async def found(host: str, port: int) -> list[str]:
        given = known.get(host.replace(".", "_").replace("-", "_"))
        return given.split() if given is not None else await resolve(host, port)

    return found


@pytest.mark.parametrize(("address", "kind"), KINDS.items())
def test_s3_what_an_address_is_counts_in_whatever_form_it_is_written(address: str, kind: str) -> None:
    assert classify_address(address) == kind


PUBLIC = names(mcp_example="93.184.216.34", inside_example="10.0.0.9", both_example="93.184.216.34 127.0.0.1")
FORBIDDEN = [
    "https://169.254.169.254/latest/meta-data",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://0/",
    "https://10.1.2.3/",
    "https://192.168.0.1/",
    "https://[fd00:ec2::254]/",
    "https://localhost/",
    "https://inside.example/",
    "https://both.example/",
]


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_s3_c16_a_public_server_leads_to_nothing_that_is_not_public(url: str) -> None:
    rules = await AddressRules.for_server("https://mcp.example/mcp", PUBLIC)
    with pytest.raises(AddressRefused, match="resolves to"):
        await rules.addresses(url)


NONE = [
    *("file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "vbscript:x", "ftp://mcp.example/", "x"),
    *("//mcp.example", "https://", "https://mcp.example:99999/", "https://mcp.example:0/", "http://[::1"),
    *("https://u:p@mcp.example/", "https://mcp.example/a b", "https://mcp.example/\r\n", 'https://mcp.example/"&calc'),
]


@pytest.mark.parametrize("url", NONE)
async def test_s7_c16_only_plain_addresses_of_the_web_are_any(url: str) -> None:
    rules = await AddressRules.for_server("https://mcp.example/mcp", PUBLIC)
    with pytest.raises(AddressRefused):
        rules.check(url)


async def test_s3_what_the_configured_server_is_itself_may_be_used() -> None:
    assert await (await AddressRules.for_server("https://mcp.example/mcp", PUBLIC)).addresses(
        "https://mcp.example/x"
    ) == ["93.184.216.34"]
    local = await AddressRules.for_server("http://127.0.0.1:3000/mcp")
    assert await local.addresses("http://localhost:4000/") and await local.addresses("https://[::1]:1/")
    inside = await AddressRules.for_server("https://inside.example/mcp", PUBLIC)
    assert await inside.addresses("https://10.1.2.3/") == ["10.1.2.3"]
    for rules, url in ((local, "http://10.1.2.3/"), (local, "http://169.254.169.254/"), (inside, "https://127.0.0.1/")):
        with pytest.raises(AddressRefused):
            await rules.addresses(url)


async def test_s3_an_encrypted_server_leads_to_nothing_unencrypted() -> None:
    rules = await AddressRules.for_server("https://mcp.example/mcp", PUBLIC)
    with pytest.raises(AddressRefused, match="not encrypted"):
        rules.check("http://mcp.example/token")
    (await AddressRules.for_server("http://127.0.0.1:1/mcp")).check("http://127.0.0.1:1/token")


@pytest.mark.parametrize("leads", ["127.0.0.1", "93.184.216.34 127.0.0.1", "10.0.0.1 127.0.0.1"])
async def test_s3_a_name_that_leads_to_this_machine_opens_nothing_on_it(leads: str) -> None:
    rules = await AddressRules.for_server("https://evil.example/mcp", names(evil_example=leads))
    with pytest.raises(AddressRefused):
        await rules.addresses("https://127.0.0.1:8080/admin")


async def test_s3_a_name_that_leads_to_the_metadata_of_a_cloud_opens_nothing_there() -> None:
    there = "http://169.254.169.254/latest"
    rules = await AddressRules.for_server("http://evil.example/mcp", names(evil_example="169.254.169.254"))
    for url in (there, "http://evil.example/x"):
        with pytest.raises(AddressRefused, match="link-local"):
            await rules.addresses(url)
    # Whoever configures the number means it.
    assert await (await AddressRules.for_server("http://169.254.10.10/mcp")).addresses(there) == ["169.254.169.254"]


async def test_a_host_that_nobody_knows_is_told_of() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(RookeryError, match=r"mcp\.example cannot be resolved"):
        await AddressRules.for_server("https://mcp.example/mcp", unknown)


@requirement("servers.http.proxy", "hub.signin.addresses")
async def test_s3_a_name_that_only_the_proxy_can_resolve_is_left_to_it() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if host == "inside.example":
            return ["10.0.0.1"]
        if host[0].isdigit():
            return [host]
        raise OSError("unknown")

    proxies = ProxySettings("", "http://proxy.example", "direct.example")
    rules = await AddressRules.for_server("https://mcp.example/mcp", resolve, proxies)
    assert await rules.addresses("https://issuer.example/token") == []
    assert rules.proxy("https://issuer.example/token") == Proxy("proxy.example", 80)
    for url in ("https://inside.example/", "https://10.0.0.1/", "https://127.0.0.1/", "https://169.254.169.254/"):
        with pytest.raises(AddressRefused):
            await rules.addresses(url)
    with pytest.raises(AddressRefused):
        await rules.addresses("http://issuer.example/token")
    with pytest.raises(RookeryError, match="cannot be resolved"):
        await rules.addresses("https://direct.example/token")
