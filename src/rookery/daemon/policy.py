"""What stands in the files about which tools may be called, as the gateway asks for it."""

from collections.abc import Sequence

import msgspec

from rookery.gateway.rules import Judge
from rookery.guard.policy import Policy, Rule, read_rules
from rookery.upstreams.definition import Problem
from rookery.upstreams.permissions import Permissions, Written
from rookery.upstreams.sources import Found


def judge(permissions: Permissions) -> Judge:
    """The policy of the user and of the project, as a view asks for it."""
    return Policy(_rules(permissions.user), _rules(permissions.project)).verdict


def _rules(written: Sequence[Written]) -> list[Rule]:
    return [rule for one in written for rule in read_rules(one.permission, one.source)[0]]


def checked(found: Found) -> Found:
    """With what is wrong in the rules about tools among the problems."""
    rules = found.permissions.user + found.permissions.project
    wrong = [Problem(one.source, one.line, said) for one in rules for said in read_rules(one.permission, one.source)[1]]
    return msgspec.structs.replace(found, problems=[*found.problems, *wrong])
