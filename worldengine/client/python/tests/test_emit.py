"""Emitting run events."""

from __future__ import annotations

from typing import Any, cast

import pytest

from worldengine import Emitter, InvalidTransitionError, UnavailableError
from worldengine.client import Client
from worldengine.emit import RunIdentity

RUN: RunIdentity = {
    "runId": "build-1",
    "tenantId": "default",
    "projectId": "main",
    "environmentId": "local",
    "planId": "plan",
    "planVersion": "1",
}


async def test_events_are_stored_once_through_a_restart(engine: Client) -> None:
    first = Emitter(engine, town_id="town-quiet", run=RUN)
    stored = [await first.emit("RunStarted")]
    stored += [await first.emit("StepStarted", step_id=step) for step in "ab"]
    stored.append(await first.emit("BlockPlaced", step_id="a", payload={"block": "stone"}))
    assert [e["runSeq"] for e in stored] == [1, 2, 3, 4]
    assert await first.emit("RunStarted") == {**stored[0], "idempotent": True}

    second = Emitter(engine, town_id="town-quiet", run=RUN)  # it has forgotten everything
    assert await second.emit("RunStarted") == {**stored[0], "idempotent": True}
    with pytest.raises(InvalidTransitionError):
        await second.emit("StepCompleted", step_id="b")
    third = Emitter(engine, town_id="town-quiet", run=RUN)
    async for event in engine.run_events(RUN["runId"]):
        third.observe(event)
    await third.emit("StepCompleted", step_id="b")
    await third.emit("RunCompleted")
    assert (await engine.run(RUN["runId"]))["status"] == "COMPLETED"
    with pytest.raises(InvalidTransitionError) as caught:
        await third.emit("StepFailed", step_id="a")
    assert caught.value.payload == {
        "invalidTransitionDetected": True,
        "expectedState": "RUNNING or PAUSED",
        "actualState": "COMPLETED",
        "attemptedEventType": "StepFailed",
    }


async def test_event_without_answer_keeps_its_id() -> None:
    sent: list[Any] = []

    class Away:
        async def request(self, verb: str, body: Any, timeout: float | None) -> Any:
            sent.extend(body["events"])
            if len(sent) == 1:
                raise UnavailableError("TIMEOUT", "no answer")
            return {"appended": [{"eventId": "x", "runSeq": 7, "persistedAt": "now"}]}

    emitter = Emitter(cast(Client, Away()), town_id="t", run=RUN)
    with pytest.raises(UnavailableError):
        await emitter.emit("RunStarted")
    assert (await emitter.emit("RunStarted"))["eventId"] == "x"
    assert sent[0]["eventId"] == sent[1]["eventId"]
    assert (await emitter.emit("RunStarted"))["eventId"] == "x"
    assert len(sent) == 2
