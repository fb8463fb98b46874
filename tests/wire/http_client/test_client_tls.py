"""Servers behind TLS: trusted by the certificates of the system, or not at all."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpBroken
from rookery.wire.http_client.request import HttpRequestWriter
from tests.support.mcp.client import LIMIT, within_limit

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server at localhost, signed by itself, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(["openssl", "req", *words, *files], check=True, capture_output=True)
    whole = folder / "whole.pem"
    whole.write_text((folder / "certificate.pem").read_text() + (folder / "key.pem").read_text())
    return whole


@asynccontextmanager
async def serving(
    certificate: Path, names: list[str | None], answer: bytes, *, once: bool = False
) -> AsyncGenerator[int]:
    """A server that always answers the same; its port. `names` are those that it was asked for, on each connection."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _, name, __: names.append(name)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
                if once:
                    writer.close()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await within_limit(server.wait_closed())


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def told(http: HttpClient, url: str) -> bytes:
    requests = HttpRequestWriter(url, {})
    with await within_limit(http.send(requests.origin, requests.write("GET", {}))) as answer:
        return await within_limit(answer.read())


async def test_a_server_that_the_system_trusts_is_asked_by_its_name(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names: list[str | None] = []
    async with serving(certificate, names, OK) as port, HttpClient() as http:
        assert [await told(http, f"https://localhost:{port}/") for _ in range(3)] == [b"ok"] * 3
    assert names == ["localhost"]


async def test_a_large_answer_comes_whole_through_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    body = bytes(range(256)) * 10_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving(certificate, [], answer) as port, HttpClient() as http:
        assert await told(http, f"https://localhost:{port}/") == body


async def test_a_connection_that_was_closed_behind_tls_is_not_used_again(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names: list[str | None] = []
    async with serving(certificate, names, OK, once=True) as port, HttpClient() as http:
        for _ in range(3):
            assert await told(http, f"https://localhost:{port}/") == b"ok"
            async with asyncio.timeout(LIMIT):
                while http._connections:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.001)
    assert names == ["localhost"] * 3


async def test_a_server_that_the_system_does_not_trust_hears_nothing(certificate: Path) -> None:
    async with serving(certificate, [], OK) as port, HttpClient() as http:
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
            await told(http, f"https://localhost:{port}/")


async def test_a_certificate_for_another_name_is_not_taken(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(certificate, [], OK) as port, HttpClient() as http:
        with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
            await told(http, f"https://127.0.0.1:{port}/")


@asynccontextmanager
async def plain(greeting: bytes) -> AsyncGenerator[int]:
    """A server that knows nothing of TLS, greets whoever comes, and listens; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.write(greeting)
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        writer.transport.abort()
        left.set()

    came, left = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]
        if came.is_set():
            await within_limit(left.wait())


async def test_a_server_without_tls_is_not_asked_with_it() -> None:
    async with plain(b"220 hello\r\n") as port, HttpClient() as http:
        with pytest.raises(OSError, match=r"(?i)ssl"):
            await told(http, f"https://localhost:{port}/")


async def test_a_connection_that_does_not_come_about_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.client._CONNECT_SECONDS", 0.5)
    async with plain(b"") as port, HttpClient() as http:
        with pytest.raises(HttpBroken, match=r"no connection to localhost within 0\.5 s"):
            await told(http, f"https://localhost:{port}/")
