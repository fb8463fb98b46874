"""The official SDK, as much of it as signs in. Its packages import all of it, servers too, which takes a second."""

import sys
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rookery.upstreams.signin.flow import Flow

_PACKAGES = ("mcp", "mcp.client", "mcp.shared")


def import_flow() -> "type[Flow]":
    """For a process that has no other use for the SDK."""
    for name in _PACKAGES:
        if (spec := find_spec(name)) is not None:
            # Known, and never run: what lies in it is found all the same.
            sys.modules[name] = module_from_spec(spec)
    try:
        from rookery.upstreams.signin.flow import Flow
    except ImportError:
        # In another version of it that does not do.
        for name in [name for name in sys.modules if name.split(".")[0] == "mcp"]:
            del sys.modules[name]
        from rookery.upstreams.signin.flow import Flow
    return Flow
