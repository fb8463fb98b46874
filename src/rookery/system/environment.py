"""The environment of a child is stated by whoever starts it; this is the allow-list to start from."""

import os
from collections.abc import Mapping

# What programs need to find their files, speak the user's language and trust the user's certificates. No credentials.
_PERSON = {"HOME", "LOGNAME", "USER", "SHELL", "PATH", "TMPDIR", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ"}
_FOLDERS = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}
_CERTIFICATES = {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"}
ALLOWED = frozenset(_PERSON | _FOLDERS | _CERTIFICATES)


def allowed(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allow-listed part of this process's environment, with `given` on top."""
    found = {name: value for name, value in os.environ.items() if name in ALLOWED or name.startswith("LC_")}
    return found | dict(given or {})
