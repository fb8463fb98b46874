"""Which packages a command runs."""

import shlex

import pytest

from rookery.guard.lock.packages import find_packages


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("npx -y @x/server@1.2.3", ["npm @x/server@1.2.3"]),
        ("npx -y @x/server --port 80", ["npm @x/server"]),
        ("/usr/bin/npx.cmd --yes server@latest", ["npm server"]),
        ("cmd /c npx server", ["npm server"]),
        ("env A=b npx server@^1.2", ["npm server@^1.2"]),
        ("npx -p a@1.0.0 --package=b -- run", ["npm a@1.0.0", "npm b"]),
        ("npx --call 'x y' ", []),
        ("npm exec -- server@2.0.0", ["npm server@2.0.0"]),
        ("npm run server", []),
        ("bunx server", ["npm server"]),
        ("bun x server", ["npm server"]),
        ("pnpm dlx server", ["npm server"]),
        ("yarn dlx server", ["npm server"]),
        ("opencode x server", ["npm server"]),
        ("uvx Mcp_Server.Time", ["uv mcp-server-time"]),
        ("uvx mcp-server-time@2025.1", ["uv mcp-server-time==2025.1"]),
        ("uvx mcp-server-time==2025.1", ["uv mcp-server-time==2025.1"]),
        ("uvx 'server[http]>=1,<2' --x", ["uv server>=1,<2"]),
        ("uvx --python 3.12 --from server==1.0 --with extra,more run", ["uv server==1.0", "uv extra", "uv more"]),
        ("uv tool run server@latest", ["uv server"]),
        ("uv run --with server==1.0 python -m server", ["uv server==1.0"]),
        ("uv run server.py", []),
        ("pipx run server==1.0", ["pip server==1.0"]),
        ("pipx run --spec server==1.0 run", ["pip server==1.0"]),
        ("node server.js", []),
        ("python -m server", []),
        ("", []),
    ],
)
def test_the_packages_of_runners_are_found(command: str, wanted: list[str]) -> None:
    assert [f"{each.client} {each.text}" for each in find_packages(shlex.split(command))] == wanted


@pytest.mark.parametrize(
    "command",
    [
        "npx --registry http://127.0.0.1:9 server",
        "npx --registry=http://127.0.0.1:9 server",
        "env npm_config_registry=http://127.0.0.1:9 npx server",
        "uvx --index-url http://127.0.0.1:9 server",
        "uvx -i http://127.0.0.1:9 server",
        "npx ./server",
        "npx ../server",
        "npx github:owner/server",
        "npx https://127.0.0.1/server.tgz",
        "npx server@file:../x",
        "npx server@npm:other",
        "npx --userconfig=/x server",
        "npx -- --prefix=/x",
        "uvx --from git+https://127.0.0.1/server run",
        "uvx ./server",
        "pipx run https://127.0.0.1/server.py",
    ],
)
def test_c11_what_comes_from_elsewhere_is_not_looked_up_at_the_registry(command: str) -> None:
    assert find_packages(shlex.split(command)) == []


def test_c11_a_registry_in_the_environment_counts_too() -> None:
    assert find_packages(["npx", "server"], ["NPM_CONFIG_REGISTRY"]) == []
    assert find_packages(["uvx", "server"], ["UV_INDEX_URL"]) == []
    assert find_packages(["npx", "server"], ["TOKEN"]) != []


@pytest.mark.parametrize(
    ("command", "exact"),
    [
        ("npx x@1.2.3", True),
        ("npx x@1.2.3-beta.1", True),
        ("npx x@1.2", False),
        ("npx x@^1.2.3", False),
        ("npx x@next", False),
        ("npx x", False),
        ("uvx x==2025.1", True),
        ("uvx x@1.0rc1", True),
        ("uvx x>=1", False),
        ("uvx x==1.*", False),
        ("uvx x", False),
    ],
)
def test_c11_only_one_named_version_is_exact(command: str, exact: bool) -> None:
    (request,) = find_packages(shlex.split(command))
    assert request.is_exact is exact
