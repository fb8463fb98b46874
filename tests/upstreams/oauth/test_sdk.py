"""A sign-in imports only part of the SDK, and all of it if that part is not enough."""

import subprocess
import sys

import pytest

LEAN = """
import sys
from rookery.upstreams.oauth.sdk import import_flow
print(import_flow().__name__, "mcp.server" in sys.modules)
"""
# A version of which the packages have to be run.
OTHER = """
import importlib.abc, sys

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mcp.client.auth" and not hasattr(sys.modules["mcp"], "ClientSession"):
            raise ImportError(name)

sys.meta_path.insert(0, Refusing())
"""


@pytest.mark.parametrize(("before", "told"), [("", "SignInFlow False"), (OTHER, "SignInFlow True")])
def test_servers_are_not_imported_for_a_sign_in_unless_it_takes_all_of_the_sdk(before: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + LEAN], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (told, "")
