"""Making handoffs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from .canonical import hash_json
from .contract import PROPOSALS, ProposalSpec
from .types import Handoff, Precondition

__all__ = ["make_handoff"]


def _checked(type: str, args: Mapping[str, str]) -> ProposalSpec:
    spec = PROPOSALS.get(type)
    if spec is None:
        raise ValueError(f"/proposal/type must be one of {', '.join(PROPOSALS)}, not {type}")
    path = f"/proposal/args/{spec.argument}"
    for member in args:
        if member != spec.argument:
            raise ValueError(
                f"/proposal/args/{member} does not exist; the args of {type} have "
                f"{spec.argument} alone"
            )
    value = args.get(spec.argument)
    if not value:
        raise ValueError(f"{path} must be there: args must have {spec.argument}")
    if spec.values and value not in spec.values:
        raise ValueError(f"{path} must be one of {', '.join(spec.values)}, not {value}")
    return spec


def make_handoff(
    town: Mapping[str, Any],
    *,
    type: str,
    args: Mapping[str, str],
    actor_id: str,
    reason: str,
    priority: float = 0.5,
    reason_tags: Iterable[str] = (),
    preconditions: Iterable[Precondition] = (),
    proposal_id: str | None = None,
) -> Handoff:
    """Make the handoff of a proposal for a town, in the state in which the agent decided.

    ``town`` is an answer of ``engine.town`` or ``engine.towns``: ``townId``, ``snapshotHash`` and
    ``decisionEpoch`` of it count. ``args`` has the type's one argument, such as
    ``{"projectId": "wall"}``; ``priority`` is 0 to 1. An agent that names its proposals itself
    gives ``proposal_id``; otherwise the same proposal for the same state has the same id.

    The result is plain data, the same for the same arguments: store it before you send it. The
    server checks it. A type, a member of args or a value of it that does not exist, or a missing
    argument, raises ValueError with its path.
    """
    spec = _checked(type, args)
    town_id, state, epoch = town["townId"], town["snapshotHash"], town["decisionEpoch"]
    own, given = dict(args), list(preconditions)
    if proposal_id is None:
        identity = {
            "actorId": actor_id, "townId": town_id, "type": type, "args": own,
            "priority": priority, "decisionEpoch": epoch, "snapshotHash": state,
        }  # fmt: skip
        proposal_id = "proposal_" + hash_json(identity)
    command = f"{spec.verb} {town_id} {own[spec.argument]}"
    handoff = {
        "schemaVersion": "execution-handoff.v1",
        "handoffId": "handoff_" + hash_json({"proposalId": proposal_id, "command": command}),
        "advisory": True,
        "proposalId": proposal_id,
        "idempotencyKey": proposal_id,
        "snapshotHash": state,
        "decisionEpoch": epoch,
        "proposal": {
            "schemaVersion": "proposal.v2",
            "proposalId": proposal_id,
            "snapshotHash": state,
            "decisionEpoch": epoch,
            "type": type,
            "actorId": actor_id,
            "townId": town_id,
            "priority": priority,
            "reason": reason,
            "reasonTags": list(reason_tags),
            "args": own,
            "preconditions": given,
        },
        "command": command,
        "executionRequirements": {
            "expectedSnapshotHash": state,
            "expectedDecisionEpoch": epoch,
            "preconditions": given,
        },
    }
    return cast(Handoff, handoff)
