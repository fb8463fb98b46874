"""A small npm registry on loopback, with generated packages and faults on demand."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Registry:
    """`asked` has the paths of all requests; `cut` sends half of each tarball, `wrong` sends another one."""

    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    cut: bool = False
    wrong: bool = False
    packages: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])

    manifests: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def publish(self, name: str, version: str, files: Mapping[str, str], **more: Any) -> None:
        """Publish a package; `more` is added to its package.json."""
        about = self.manifests[name] = {"name": name, "version": version, **more}
        self.packages[name] = (version, _tarball({"package.json": json.dumps(about), **files}))

    def tarballs(self) -> list[str]:
        return [path for path in self.asked if path.endswith(".tgz")]

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        if path.endswith(".tgz"):
            found = self.packages.get(path.rpartition("/-/")[0].lstrip("/"))
            return _tarball({"package.json": "{}"}) if self.wrong else found[1] if found else None
        name = path.lstrip("/")
        if name not in self.packages:
            return None
        version, data = self.packages[name]
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{self.url}/{name}/-/package-{version}.tgz", "integrity": integrity}
        about = {**self.manifests[name], "dist": dist}
        return json.dumps({"name": name, "dist-tags": {"latest": version}, "versions": {version: about}}).encode()


@contextmanager
def npm_registry() -> Generator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path)
            data = registry.answer(path)
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if registry.cut and path.endswith(".tgz") else data)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing; tests read `asked`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _tarball(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            about = tarfile.TarInfo(f"package/{name}")
            about.size, about.mode = len(text.encode()), 0o755
            archive.addfile(about, io.BytesIO(text.encode()))
    return made.getvalue()
