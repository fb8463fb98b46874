"""Error responses: the HTTP status of each error code, and the handlers that turn exceptions into responses."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rookery.api.rest import json_response
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError

# The status of each code that operations raise. Codes that end in `-not-found` have 404, all others 500.
ERROR_STATUSES = {
    "invalid-input": 400,
    "ambiguous-id": 400,
    "address-refused": 502,
    "agent-unavailable": 409,
    "no-provider": 409,
    "approval-refused": 403,
    "path-denied": 403,
    "path-outside-root": 403,
    "branch-exists": 409,
    "file-unreadable": 409,
    "invalid-lock": 409,
    "forbidden": 403,
    "limit-reached": 503,
    "sandbox-unavailable": 409,
    "server-busy": 503,
    "too-many-agents": 429,
    "too-many-workspaces": 429,
    "server-exists": 409,
    "server-unavailable": 409,
    "upstream-failed": 502,
    "needs-approval": 409,
    "definition-withheld": 409,
    "result-withheld": 409,
    "needs-auth": 409,
    "needs-client-registration": 409,
    "plugin-failed": 502,
    "repository-busy": 503,
    "sign-in-failed": 502,
    "store-busy": 503,
    "timeout": 504,
    "workspace-exists": 409,
    "tool-denied": 403,
    "workspace-not-clean": 409,
    "disk-full": 507,
}


def get_error_status(code: str) -> int:
    """Return the HTTP status of an error code."""
    return 404 if code.endswith("-not-found") else ERROR_STATUSES.get(code, 500)


async def handle_rookery_error(request: Request, error: Exception) -> Response:
    """Return the response for an expected error."""
    assert isinstance(error, RookeryError)
    return json_response({"error": error.as_dict()}, get_error_status(error.code))


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Return the response for an HTTP error of Starlette."""
    assert isinstance(error, HTTPException)
    code = {404: "route-not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-input")
    remedy = "see the routes in the HTTP reference of the docs"
    return json_response({"error": {"code": code, "message": error.detail, "remedy": remedy}}, error.status_code)


async def handle_crash(request: Request, error: Exception) -> Response:
    """Return the response for an unexpected error."""
    explained = explain_os_error(error) if isinstance(error, OSError) else None
    if explained is not None:
        return json_response({"error": explained.as_dict()}, get_error_status(explained.code))
    message = "an internal error occurred; see the log of the daemon"
    return json_response({"error": {"code": "internal-error", "message": message}}, 500)
