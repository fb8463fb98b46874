"""An MCP server that requires a sign-in, and its authorization server, on the standard library alone."""

import http.server
import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOKEN = "a-token-of-the-bench"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def base(self) -> str:
        return f"http://{self.headers['host']}"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            self.send_json({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})
        elif parts.path == "/.well-known/oauth-authorization-server":
            ends = {"authorization_endpoint": f"{self.base}/authorization", "token_endpoint": f"{self.base}/token"}
            more = {"registration_endpoint": f"{self.base}/register", "code_challenge_methods_supported": ["S256"]}
            self.send_json({"issuer": self.base, **ends, **more, "response_types_supported": ["code"]})
        elif parts.path == "/authorization":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            back = urlencode({"code": "c", "state": query["state"]})
            self.send_json({}, 302, {"Location": f"{query['redirect_uri']}?{back}"})
        else:
            self.send_json({}, 200 if parts.path == "/" else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.path == "/register":
            self.send_json(json.loads(body) | {"client_id": "bench", "token_endpoint_auth_method": "none"}, 201)
        elif self.path == "/token":
            self.send_json({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})
        elif self.headers.get("authorization") != f"Bearer {TOKEN}":
            self.send_json({}, 401, {"WWW-Authenticate": "Bearer"})
        else:
            self.handle_message(json.loads(body))

    def handle_message(self, message: dict[str, Any]) -> None:
        info = {"name": "far", "version": "1"}
        about: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        results: dict[str, Any] = {"initialize": about, "tools/list": {"tools": []}}
        if "id" not in message:
            self.send_json({}, 202)
        elif message["method"] in results:
            self.send_json({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})
        else:
            self.send_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "what?"}})

    def send_json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        for name, text in sent.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
