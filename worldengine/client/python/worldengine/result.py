"""Checking results: their ids are hashes of what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .canonical import hash_json

__all__ = ["derive_result_id", "is_revision_1", "verify_result"]

_HASHED = (
    "handoffId", "status", "accepted", "executed", "reasonCode", "evaluation", "worldState",
)  # fmt: skip
_HASHED_1 = (
    *_HASHED, "type", "schemaVersion", "proposalId", "actorId", "townId", "proposalType",
    "command", "authorityCommands", "embodiment",
)  # fmt: skip

# The values of accepted and executed for each status.
_BOOLEANS = {
    "executed": (True, True),
    "failed": (True, False),
    "rejected": (False, False),
    "stale": (False, False),
    "duplicate": (False, False),
}
_CHECKS = ("preconditions", "staleCheck", "duplicateCheck")
# The members that a result has from its handoff.
_ECHOES = (
    "handoffId", "proposalId", "idempotencyKey", "snapshotHash", "decisionEpoch", "command",
)  # fmt: skip


def is_revision_1(result: Mapping[str, Any]) -> bool:
    """Report whether a result has the form of revision 1."""
    version = result.get("schemaVersion")
    return version == 1 and not isinstance(version, bool)


def derive_result_id(result: Mapping[str, Any]) -> str:
    """Return the id that a result must have: a hash of the members that its revision hashes."""
    members = _HASHED_1 if is_revision_1(result) else _HASHED
    return "result_" + hash_json({name: result[name] for name in members if name in result})


def verify_result(result: Any, handoff: Mapping[str, Any] | None = None) -> str | None:
    """Return the defect of a value that is no valid execution-result.v1, or None.

    The checks are of its revision, the booleans of its status, the three evaluations, and its id,
    which is its hash; with ``handoff`` also whether it is the result of that handoff.
    """
    if not isinstance(result, Mapping):
        return "it is no object"
    one = is_revision_1(result) and result.get("type") == "execution-result.v1"
    if not one and result.get("schemaVersion") != "execution-result.v1":
        return "it is no execution-result.v1"
    status = result.get("status")
    required = _BOOLEANS.get(status) if isinstance(status, str) else None
    if required is None:
        return f"its status is {status}"
    if result.get("accepted") is not required[0] or result.get("executed") is not required[1]:
        return f"accepted and executed are not those of {status}"
    evaluation = result.get("evaluation")
    if not isinstance(evaluation, Mapping) or not all(
        isinstance(evaluation.get(check), Mapping) for check in _CHECKS
    ):
        return "evaluation does not have the three checks"
    if not result.get("reasonCode"):
        return "it has no reasonCode"
    if result.get("idempotencyKey") != result.get("proposalId"):
        return "idempotencyKey is not its proposalId"
    if one and result.get("executionId") != result.get("resultId"):
        return "executionId is not its resultId"
    for name in _ECHOES if handoff is not None else ():
        if handoff is not None and name in handoff and result.get(name) != handoff[name]:
            return f"its {name} is not the handoff's"
    try:
        expected = derive_result_id(result)
    except ValueError as error:
        return f"it has no hash: {error}"
    return None if result.get("resultId") == expected else f"resultId is not its hash, {expected}"
