"""Import the parts of the official SDK that a sign-in needs.

The packages of the SDK import all of it, its server side included, which takes a second.
"""

import sys
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rookery.upstreams.oauth.flow import SignInFlow

_PACKAGES = ("mcp", "mcp.client", "mcp.shared")


def import_flow() -> "type[SignInFlow]":
    """Import the sign-in flow with few parts of the SDK, for a process that uses the SDK for nothing else."""
    for name in _PACKAGES:
        if (spec := find_spec(name)) is not None:
            # The package is registered but not executed; its modules can be imported all the same.
            sys.modules[name] = module_from_spec(spec)
    try:
        from rookery.upstreams.oauth.flow import SignInFlow
    except ImportError:
        # Another version of the SDK may need its packages: import them normally.
        for name in [name for name in sys.modules if name.split(".")[0] == "mcp"]:
            del sys.modules[name]
        from rookery.upstreams.oauth.flow import SignInFlow
    return SignInFlow
