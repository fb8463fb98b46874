"""The HTTP client: kept connections to HTTP servers, requests, responses and event streams."""
