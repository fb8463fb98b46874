"""The proxies that an environment names, and for which servers they are used."""

import pytest

from rookery.wire.http_client.proxy import Proxy, ProxySettings
from rookery.wire.http_client.request import HttpOrigin, HttpRequestWriter
from tests.support.requirements import requirement

PROXY = Proxy("proxy.example", 3128)
SETTINGS = ProxySettings("http://proxy.example:3128", "http://proxy.example:3128")


def test_names_in_lower_case_come_first_and_an_empty_one_means_none() -> None:
    found = ProxySettings.from_environment(
        {
            "HTTP_PROXY": "http://a",
            "http_proxy": "http://b",
            "HTTPS_PROXY": "http://c",
            "https_proxy": "",
            "NO_PROXY": "x",
        }
    )
    assert found == ProxySettings("http://b", "", "x")
    assert ProxySettings.from_environment({}) == ProxySettings()


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy.example:3128", PROXY),
        ("http://proxy.example:3128/", PROXY),
        ("proxy.example:3128", PROXY),
        ("http://proxy.example", Proxy("proxy.example", 80)),
        ("http://me:p%40ss@proxy.example:3128", Proxy("proxy.example", 3128, "Basic bWU6cEBzcw==")),
        ("http://[::1]:3128", Proxy("::1", 3128)),
    ],
)
def test_the_address_of_a_proxy_may_be_written_in_every_usual_form(url: str, proxy: Proxy) -> None:
    for tls in (True, False):
        assert ProxySettings(url, url).find(HttpOrigin(tls, "far.example", 443)) == proxy


@pytest.mark.parametrize("url", ["socks5://me:secret@h:1", "https://me:secret@h", "http://:80", "http://me:secret@h:x"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_credentials(url: str) -> None:
    with pytest.raises(ValueError, match="HTTPS_PROXY") as caught:
        ProxySettings("", url).find(HttpOrigin(True, "far.example", 443))
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(ProxySettings("", url))
    assert "secret" not in repr(Proxy("h", 1, "Basic secret"))


@requirement("servers.http.proxy")
@pytest.mark.parametrize(
    ("bypass", "host", "used"),
    [
        ("", "far.example", True),
        ("", "localhost", False),
        ("", "a.localhost", False),
        ("", "127.0.0.1", False),
        ("", "127.9.9.9", False),
        ("", "::1", False),
        ("", "10.0.0.1", True),
        ("*", "far.example", False),
        ("far.example", "far.example", False),
        ("far.example", "FAR.example.", False),
        ("far.example", "a.far.example", False),
        (".far.example", "a.far.example", False),
        ("*.far.example", "a.far.example", False),
        ("far.example", "nofar.example", True),
        ("other, far.example", "far.example", False),
        ("other far.example", "far.example", False),
        ("far.example:443", "far.example", False),
        ("far.example:444", "far.example", True),
        ("10.0.0.1", "10.0.0.1", False),
        ("10.0.0.0/8", "10.200.0.1", False),
        ("10.0.0.0/8", "11.0.0.1", True),
        ("10.0.0.1:443", "10.0.0.1", False),
        ("fe80::1", "fe80::1", False),
        ("[fe80::1]:443", "fe80::1", False),
        ("fe80::/10", "fe80::99", False),
        ("0.0.1", "10.0.0.1", True),
        (",", "far.example", True),
    ],
)
def test_no_proxy_names_domains_numbers_networks_and_ports(bypass: str, host: str, used: bool) -> None:
    for tls in (True, False):
        settings = ProxySettings(SETTINGS.http, SETTINGS.https, bypass)
        assert settings.find(HttpOrigin(tls, host, 443)) == (PROXY if used else None)


def test_a_tunnel_is_requested_with_nothing_of_the_requests_in_it() -> None:
    request = Proxy("p", 1, "Basic x").write_connect(HttpOrigin(True, "far.example", 443))
    assert request == (
        b"CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\nProxy-Authorization: Basic x\r\n\r\n"
    )
    assert Proxy("p", 1).write_connect(HttpOrigin(True, "fe80::1", 8443)).startswith(b"CONNECT [fe80::1]:8443 HTTP")


def test_a_request_without_tls_has_the_whole_url_and_is_otherwise_the_same() -> None:
    for url, line in (
        ("http://far.example/mcp?a=1", b"POST http://far.example/mcp?a=1 HTTP/1.1"),
        ("http://far.example:8080/", b"POST http://far.example:8080/ HTTP/1.1"),
    ):
        writer = HttpRequestWriter(url, {"Authorization": "Bearer t"})
        request = writer.write("POST", {"A": "b"}, b"POST / HTTP/1.1\r\n")
        first, _, rest = request.partition(b"\r\n")
        assert first.startswith(b"POST /")
        assert Proxy("p", 1, "Basic x").rewrite(writer.origin, request) == (
            line + b"\r\nProxy-Authorization: Basic x\r\n" + rest
        )
