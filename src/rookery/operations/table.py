"""The table of all operations: the classes that declare them."""

from typing import Any

from rookery.operations.agents import AgentOperations
from rookery.operations.daemon import DaemonOperations
from rookery.operations.guard.approvals import GuardOperations
from rookery.operations.guard.audit import AuditOperations
from rookery.operations.guard.pins import PinOperations
from rookery.operations.operation import BoundOperation, Operation, list_operations
from rookery.operations.plugins import PluginOperations
from rookery.operations.project.files import FileOperations
from rookery.operations.project.tasks import TaskOperations
from rookery.operations.projects import ProjectOperations
from rookery.operations.screens import ScreenOperations
from rookery.operations.servers.control import ServerOperations
from rookery.operations.servers.lock import LockOperations
from rookery.operations.servers.signin import SignInOperations
from rookery.operations.sessions import SessionOperations
from rookery.operations.trash import TrashOperations
from rookery.operations.workspaces import WorkspaceOperations

# In the order of the reference.
GROUPS: tuple[type[Any], ...] = (
    ProjectOperations,
    WorkspaceOperations,
    AgentOperations,
    TrashOperations,
    FileOperations,
    TaskOperations,
    SessionOperations,
    ScreenOperations,
    ServerOperations,
    SignInOperations,
    PluginOperations,
    DaemonOperations,
    GuardOperations,
    AuditOperations,
    PinOperations,
    LockOperations,
)


def list_all_operations() -> list[Operation]:
    """Return all operations. Generators and tests read this list; the daemon binds the same classes."""
    return [operation for group in GROUPS for operation in list_operations(group)]


def make_unbound_operations() -> list[BoundOperation[Any]]:
    """Return all operations without services: their routes and tools can be described, but not called."""
    return [BoundOperation(operation, None) for operation in list_all_operations()]
