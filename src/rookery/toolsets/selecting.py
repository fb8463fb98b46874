"""What the tools say that act in a workspace, where a client has selected none."""

from rookery.system.errors import RookeryError

_HEADER = "X-Workspace-Path"


def nothing_selected() -> RookeryError:
    return RookeryError(
        "invalid-input",
        "no workspace is selected",
        f"send the header {_HEADER} with the path of a workspace; workspace_list tells what there is",
    )
