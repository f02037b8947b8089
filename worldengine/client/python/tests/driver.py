"""The driver of Python for worldengine/client/languages: it answers questions about bytes."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from worldengine import (
    canonical_json,
    derive_result_id,
    hash_json,
    make_handoff,
    town_token,
    verify_result,
)
from worldengine.canonical import decode, encode
from worldengine.emit import idempotency_key


def handoff(asked: Any) -> Any:
    p = asked["proposal"]
    given = {"proposal_id": p["proposalId"]} if "proposalId" in p else {}
    return make_handoff(
        asked["town"],
        type=p["type"],
        args=p["args"],
        actor_id=p["actorId"],
        reason=p["reason"],
        priority=p["priority"],
        reason_tags=p["reasonTags"],
        preconditions=p["preconditions"],
        **given,
    )


def key(asked: Any) -> str:
    return idempotency_key(
        run_id=asked["runId"],
        step_id=asked.get("stepId"),
        attempt=asked["logicalAttemptId"],
        event_type=asked["eventType"],
        plan_id=asked["planId"],
        plan_version=asked["planVersion"],
    )


ANSWERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "canonical": lambda q: {"text": canonical_json(q["value"]), "hash": hash_json(q["value"])},
    "handoff": lambda q: {"handoff": handoff(q)},
    "resultId": lambda q: {"id": derive_result_id(q["result"])},
    "verify": lambda q: {"valid": verify_result(q["result"]) is None},
    "token": lambda q: {"token": town_token(q["townId"])},
    "key": lambda q: {"key": key(q)},
}

if __name__ == "__main__":
    for line in sys.stdin.buffer:  # bytes end at \n alone
        asked = decode(line)
        sys.stdout.buffer.write(encode(ANSWERS[asked["do"]](asked)) + b"\n")
