"""The allow-list of variables from which the environment of a child process is built."""

import os
from collections.abc import Mapping

# Variables by which programs find files, the user's language and the user's certificates. None holds credentials.
_USER_VARIABLES = {"HOME", "LOGNAME", "USER", "SHELL", "PATH", "TMPDIR", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ"}
_FOLDERS = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}
_CERTIFICATES = {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"}
ALLOWED_VARIABLES = frozenset(_USER_VARIABLES | _FOLDERS | _CERTIFICATES)


def allowed_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the allow-listed part of this process's environment, updated with `overrides`."""
    allowed = {name: value for name, value in os.environ.items() if name in ALLOWED_VARIABLES or name.startswith("LC_")}
    return allowed | dict(overrides or {})
