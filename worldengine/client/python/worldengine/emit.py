"""Emitting the events of a run from another process than the engine, such as a plugin."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .canonical import sha256
from .contract import TRANSITIONS

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Appended", "Emitter", "InvalidTransitionError", "RunIdentity"]


class RunIdentity(TypedDict):
    """The run that an Emitter emits events of."""

    runId: str
    tenantId: str
    projectId: str
    environmentId: str
    planId: str
    planVersion: str


class Appended(TypedDict):
    """An event as the append authority has persisted it.

    ``idempotent`` means that the run had it before.
    """

    eventId: str
    runSeq: int
    persistedAt: str
    idempotent: bool


class InvalidTransitionError(Exception):
    """The event is invalid in the state of its run or step attempt that the emitter knows.

    It was not sent, and the emitter sends no other event of that run or step attempt (RunEvents
    v2.0.1, section 5.3, layer 1). ``payload`` is the report that section 5.3 requires.
    """

    def __init__(self, event_type: str, entity: str, expected: str, actual: str) -> None:
        super().__init__(f"{event_type} is not valid for {entity}: it is {actual}, not {expected}")
        self.payload = {
            "invalidTransitionDetected": True,
            "expectedState": expected,
            "actualState": actual,
            "attemptedEventType": event_type,
        }


class Emitter:
    """Emits the events of one run, one at a time.

    An event gets its eventId before it is sent, so that each retry has the same one. After a
    restart of the emitter the event gets another eventId, but the append authority stores an event
    once, by its idempotencyKey. The emitter keeps the eventId that the authority returns (section
    2.5.1).
    """

    def __init__(
        self, client: Client, *, town_id: str, run: RunIdentity, engine_attempt_id: int = 1
    ) -> None:
        self._client, self._town_id, self._run = client, town_id, run
        self._engine_attempt_id = engine_attempt_id
        self._ids: dict[str, str] = {}  # the EventIdRegistry: the eventId by idempotencyKey
        self._stored: dict[str, Appended] = {}  # by idempotencyKey
        self._status: dict[str, str] = {}  # of the run ("") and of each step attempt
        self._stopped: dict[str, InvalidTransitionError] = {}
        self._turn = asyncio.Lock()

    def observe(self, event: Mapping[str, Any]) -> None:
        """Note an event that the run has: from another producer, or from before a restart."""
        key = event["idempotencyKey"]
        if key in self._stored:
            return
        self._ids[key] = event["eventId"]
        self._stored[key] = {
            "eventId": event["eventId"],
            "runSeq": event["runSeq"],
            "persistedAt": event["persistedAt"],
            "idempotent": True,
        }
        step, attempt = event.get("stepId"), event["logicalAttemptId"]
        if self._refusal(event["eventType"], step, attempt):
            return
        move = TRANSITIONS.get(event["eventType"])
        if move and not move.stays:
            self._status[_entity(step, attempt)] = move.target

    async def emit(
        self,
        event_type: str,
        *,
        step_id: str | None = None,
        attempt: int = 1,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Appended:
        """Append an event, and return it as it is persisted. A repeated event is stored once.

        An event of a step has ``step_id``, and ``attempt`` unless it is the first one. It raises an
        InvalidTransitionError, or an error of ``request``.
        """
        async with self._turn:
            return await self._emit(event_type, step_id, attempt, payload, timeout)

    async def _emit(
        self,
        event_type: str,
        step_id: str | None,
        attempt: int,
        payload: Mapping[str, Any] | None,
        timeout: float | None,
    ) -> Appended:
        run = self._run
        key = idempotency_key(
            run_id=run["runId"],
            step_id=step_id,
            attempt=attempt,
            event_type=event_type,
            plan_id=run["planId"],
            plan_version=run["planVersion"],
        )
        if before := self._stored.get(key):
            return cast(Appended, {**before, "idempotent": True})
        entity = _entity(step_id, attempt)
        if refusal := self._stopped.get(entity) or self._refusal(event_type, step_id, attempt):
            self._stopped[entity] = refusal
            raise refusal
        event = {
            **run,
            "eventId": self._ids.setdefault(key, str(uuid.uuid4())),
            "eventType": event_type,
            "idempotencyKey": key,
            "emittedAt": _now(),
            "engineAttemptId": self._engine_attempt_id,
            "logicalAttemptId": attempt,
        }
        event.update({} if step_id is None else {"stepId": step_id})
        event.update({} if payload is None else {"payload": payload})
        body = {"townId": self._town_id, "events": [event]}
        reply = await self._client.request("run.append", body, timeout=timeout)
        appended = cast(Appended, reply["appended"][0])
        self.observe({**event, **appended})
        return appended

    def _refusal(
        self, event_type: str, step_id: str | None, attempt: int
    ) -> InvalidTransitionError | None:
        """Return an error if an event is invalid now."""
        move = TRANSITIONS.get(event_type)
        if not move:
            return None  # consumers change nothing for it
        run = self._status.get("", "PENDING")
        if move.of_step and run in ("COMPLETED", "FAILED", "CANCELLED"):
            return InvalidTransitionError(event_type, "a step of the run", "RUNNING or PAUSED", run)
        now = self._status.get(_entity(step_id, attempt), "PENDING")
        if now in move.source:
            return None
        entity = "the run" if step_id is None else f"step {step_id}, attempt {attempt}"
        return InvalidTransitionError(event_type, entity, " or ".join(move.source), now)


def idempotency_key(
    *,
    run_id: str,
    step_id: str | None,
    attempt: int,
    event_type: str,
    plan_id: str,
    plan_version: str,
) -> str:
    """Return the idempotencyKey of an event (RunEvents v2.0.1, section 3.1).

    An event of the run has no ``step_id``.
    """
    step = "RUN" if step_id is None else step_id
    return sha256("|".join((run_id, step, str(attempt), event_type, plan_id, plan_version)))


def _entity(step_id: str | None, attempt: int) -> str:
    return "" if step_id is None else f"{attempt} {step_id}"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
