"""The transport for all requests of a sign-in."""

from pathlib import Path

import httpx2
import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.addresses import AddressKind, AddressRules
from rookery.upstreams.oauth.transport import GuardedTransport
from tests.support.http.certificates import Authority
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer, within_limit
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("hub.signin.addresses")]

LOCAL: frozenset[AddressKind] = frozenset({"public", "loopback"})


def guarded(rules: AddressRules, told: list[str] | None = None) -> httpx2.AsyncClient:
    transport = GuardedTransport(
        rules,
        httpx2.Response(401),
        lambda what, came, ok: told.append(what) if told is not None else None,
        lambda request: None,
        lambda request, status, body: body,
    )
    return httpx2.AsyncClient(transport=transport, trust_env=False)


async def hello(asked: HttpRequest, out: HttpResponder) -> None:
    await out.json({"host": asked.headers["host"], "path": asked.path})


async def test_s3_a_name_is_resolved_once_and_connected_to_where_it_was_found() -> None:
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    resolved: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        resolved.append(host)
        return answers[min(len(resolved), len(answers)) - 1]

    async with ScriptedHttpServer(hello) as server:
        async with guarded(AddressRules(LOCAL, True, rebinding)) as client:
            url = f"http://name.example:{server.port}/a"
            for _ in range(3):
                found = (await within_limit(client.get(url))).json()
                assert found == {"host": f"name.example:{server.port}", "path": "/a"}
        assert resolved == ["name.example"]
        async with guarded(AddressRules(LOCAL, True, rebinding)) as client:
            with pytest.raises(RookeryError, match="resolves to 169"):
                await within_limit(client.get(url))
        assert len(server.asked) == 3


async def test_s3_a_certificate_has_to_be_that_of_the_name_and_not_of_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with (
        ScriptedHttpServer(hello, tls=authority.server()) as server,
        guarded(AddressRules(LOCAL, False, here)) as client,
    ):
        with pytest.raises(RookeryError, match=r"(?i)certificate"):
            await within_limit(client.get(f"https://other.example:{server.port}/"))
        assert server.asked == []
        assert (await within_limit(client.get(f"https://127.0.0.1:{server.port}/"))).status_code == 200
        # Who has proved to be one name has not proved to be all that lead to the same number.
        with pytest.raises(RookeryError, match=r"(?i)certificate"):
            await within_limit(client.get(f"https://other.example:{server.port}/"))
        assert len(server.asked) == 1


async def test_an_answer_without_measure_or_in_a_foreign_encoding_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.upstreams.oauth.transport._SECONDS", 1.0)

    async def strange(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.path == "/encoded":
            await out.answer(200, b"x", headers={"Content-Encoding": "gzip"})
        elif asked.path == "/large":
            await out.answer(200, b"x" * 1_000_001)
        else:
            await out.left()

    told: list[str] = []
    async with (
        ScriptedHttpServer(strange) as server,
        guarded(await AddressRules.for_server(server.url), told) as client,
    ):
        for path, why in (
            ("/encoded", "encoding"),
            ("/large", "1,000,000 bytes"),
            ("/slow?secret=1", "no response within"),
        ):
            with pytest.raises(RookeryError, match=why):
                await within_limit(client.get(server.url.replace("/mcp", path)))
    assert "secret" not in str(told) and len(told) == 3
    assert all(asked.headers["accept-encoding"] == "identity" for asked in server.asked)
