"""A small package index on loopback, with generated wheels, for pip and uv."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Index:
    """`asked` has the paths of all requests; `files` the wheels by file name."""

    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def publish(self, name: str, version: str, tag: str = "py3-none-any", content: str = "") -> str:
        """Publish a wheel with one module, and return its SHA-256."""
        plain = name.replace("-", "_")
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            about = f"{plain}-{version}.dist-info"
            archive.writestr(f"{plain}.py", content)
            archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            archive.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{name} = {plain}:main\n")
            archive.writestr(f"{about}/RECORD", "")
        self.files[f"{plain}-{version}-{tag}.whl"] = made.getvalue()
        return hashlib.sha256(made.getvalue()).hexdigest()

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        last = path.rstrip("/").rpartition("/")[2]
        if path.startswith("/files/"):
            return self.files.get(last)
        links = [
            f'<a href="{self.url}/files/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'
            for name, data in self.files.items()
            if name.partition("-")[0].replace("_", "-") == last
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if links else None


@contextmanager
def package_index() -> Generator[Index]:
    index = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = index.answer(self.path)
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if not self.path.startswith("/files/") else "application/zip")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing; tests read `asked`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
