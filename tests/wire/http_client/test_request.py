"""Requests as bytes, and invalid requests."""

import pytest

import rookery
from rookery.wire.http_client.request import HttpOrigin, HttpRequestWriter

AGENT = f"User-Agent: rookery/{rookery.__version__}\r\n".encode()


def test_a_request_is_head_and_body_in_one_piece() -> None:
    requests = HttpRequestWriter("http://example.com/mcp?a=b#c", {"Authorization": "Bearer x"})
    assert requests.write("POST", {"Mcp-Name": "ü"}, b"{}") == (
        b"POST /mcp?a=b HTTP/1.1\r\nHost: example.com\r\n" + AGENT + b"Authorization: Bearer x\r\n"
        b"Accept-Encoding: identity\r\nMcp-Name: \xc3\xbc\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert requests.write("GET", {}).endswith(b"Accept-Encoding: identity\r\n\r\n")


@pytest.mark.parametrize(
    ("url", "place", "host", "path"),
    [
        ("http://example.com", HttpOrigin(False, "example.com", 80), b"example.com", b"/"),
        ("HTTPS://Example.com:443/x", HttpOrigin(True, "example.com", 443), b"example.com", b"/x"),
        ("https://example.com:8443/x/", HttpOrigin(True, "example.com", 8443), b"example.com:8443", b"/x/"),
        ("http://[::1]:80/", HttpOrigin(False, "::1", 80), b"[::1]", b"/"),
        ("http://[fe80::1%25eth0]:81/", HttpOrigin(False, "fe80::1%25eth0", 81), b"[fe80::1]:81", b"/"),
        ("http://bücher.example/", HttpOrigin(False, "xn--bcher-kva.example", 80), b"xn--bcher-kva.example", b"/"),
        ("http://h/a b/ü?q=%20ö&r=[]", HttpOrigin(False, "h", 80), b"h", b"/a%20b/%C3%BC?q=%20%C3%B6&r=[]"),
        ("http://h?q", HttpOrigin(False, "h", 80), b"h", b"/?q"),
    ],
)
def test_a_url_becomes_a_place_a_host_and_a_path(url: str, place: HttpOrigin, host: bytes, path: bytes) -> None:
    requests = HttpRequestWriter(url, {})
    assert requests.origin == place
    assert requests.write("GET", {}).startswith(b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (path, host))


def test_a_name_and_password_in_the_url_are_sent_unless_something_else_is_configured() -> None:
    assert b"Authorization: Basic YTpiOmM=\r\n" in HttpRequestWriter("http://a:b%3Ac@h/", {}).write("GET", {})
    written = HttpRequestWriter("http://a:b@h/", {"authorization": "Bearer x"}).write("GET", {})
    assert written.lower().count(b"authorization:") == 1
    assert b"authorization: Bearer x\r\n" in written


def test_a_header_of_a_request_stands_instead_of_one_that_is_always_sent() -> None:
    requests = HttpRequestWriter("http://h/", {"accept": "a", "x-other": "o"})
    for value in (b"b", b"c"):
        written = requests.write("GET", {"Accept": value.decode()})
        assert written.lower().count(b"accept:") == 1
        assert b"Accept: %b\r\n" % value in written
    assert b"accept: a\r\n" in requests.write("GET", {})


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "Upgrade", "Accept-Encoding"])
def test_how_a_message_is_framed_cannot_be_configured(name: str) -> None:
    written = HttpRequestWriter("http://h/", {name: "s3t"}).write("POST", {}, b"body")
    assert b"s3t" not in written
    assert written.endswith(b"Content-Length: 4\r\n\r\nbody")


@pytest.mark.parametrize("mark", ["\r\nX-Evil: 1", "\n", "\r", "\0"], ids=["CRLF", "LF", "CR", "NUL"])
def test_no_header_becomes_two(mark: str) -> None:
    with pytest.raises(ValueError, match="X-Key must not contain a line break") as caught:
        HttpRequestWriter("http://h/", {"X-Key": f"s3cret{mark}"})
    assert "s3cret" not in str(caught.value)
    requests = HttpRequestWriter("http://h/", {})
    with pytest.raises(ValueError, match="must not contain a line break"):
        requests.write("POST", {"Mcp-Name": f"x{mark}"}, b"")
    for name in (f"X-Key{mark}", "", "X Key", "X:Key", "ü"):
        with pytest.raises(ValueError, match="not a valid header name"):
            HttpRequestWriter("http://h/", {name: "x"})
        with pytest.raises(ValueError, match="not a valid header name"):
            requests.write("POST", {name: "x"}, b"")


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://h/", "http://", "http:///x", "http://h:99999/", "http://[::1/"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"not a valid http or https URL|out of range|Invalid IPv6"):
        HttpRequestWriter(url, {})


def test_a_line_end_in_a_url_ends_no_line() -> None:
    written = HttpRequestWriter("http://h/a\r\nX-Evil: 1", {}).write("GET", {})
    assert written.startswith(b"GET /aX-Evil:%201 HTTP/1.1\r\n")


def test_heads_are_kept_for_a_bounded_number_of_headers() -> None:
    requests = HttpRequestWriter("http://h/", {})
    for number in range(1000):
        assert b"X-%d: 1\r\n" % number in requests.write("POST", {f"X-{number}": "1"}, b"")
    assert len(requests._heads) <= 100


@pytest.mark.parametrize(
    ("location", "line"),
    [
        ("/b?x=1", b"POST /b?x=1 HTTP/1.1"),
        ("c/", b"POST /v/c/ HTTP/1.1"),
        ("http://HOST.example:80/b#here", b"POST /b HTTP/1.1"),
        ("http://other:pw@host.example/b", b"POST /b HTTP/1.1"),
        ("http://host.example:81/b", None),
        ("https://host.example/b", None),
        ("//other.example/b", None),
        ("http://host.example@other.example/b", None),
        ("file:///b", None),
        ("http://[", None),
    ],
)
def test_a_redirect_within_the_origin_keeps_the_headers(location: str, line: bytes | None) -> None:
    writer = HttpRequestWriter("http://me:pw@host.example/v/a", {"X-Key": "k"})
    redirected = writer.at(location)
    if line is None:
        assert redirected is None
        return
    assert redirected is not None and redirected.origin == writer.origin
    original = writer.write("POST", {"A": "b"}, b"{}")
    assert redirected.write("POST", {"A": "b"}, b"{}") == original.replace(b"POST /v/a HTTP/1.1", line)
