"""Agents in Python: one that proposes once, and one that looks after several towns.

    python agent.py                                     # a proposal for town-threatened
    python agent.py --store DIR --rounds 5 TOWN...      # 5 executed proposals for each town

The second one may be killed at any moment, and the server too: started again with its directory it
goes on, and nothing is done twice. It stores each handoff before it sends it, and until it has the
result it sends the stored bytes again. The server and the credentials are those of the NATS command
line: NATS_URL, NATS_USER, …
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

import worldengine
from worldengine.types import Handoff, Result, Town

ACTOR = "mayor-1"
PAUSE = 1.0  # seconds before the agent looks or asks again


async def once() -> None:
    """Look at a town, propose a command for it, and see what became of it."""
    async with worldengine.connect() as engine:
        town = await engine.town("town-threatened")
        handoff = worldengine.make_handoff(
            town,
            type="PROJECT_ADVANCE",
            args={"projectId": "wall-perimeter"},
            actor_id=ACTOR,
            priority=0.8,
            reason="The wall is low.",
            reason_tags=["threat"],
            preconditions=[{"kind": "project_exists", "targetId": "wall-perimeter"}],
        )
        result, run_id, _ = await engine.send(handoff)
        print(result["status"], result["reasonCode"], result["resultId"])
        async for event in engine.events(run_id=run_id):
            print(event["runSeq"], event["eventType"], event.get("stepId", ""))


class Journal:
    """What an agent has decided for a town, and what became of it: a line of JSON each."""

    def __init__(self, directory: Path, town_id: str) -> None:
        self._path = directory / f"{worldengine.town_token(town_id)}.jsonl"
        self.pending: Handoff | None = None
        """The handoff that has no result yet."""
        self.judged = ""
        """The id of the last handoff that has a result."""
        self.executed = 0
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):  # torn by a crash: it was not sent
            lines.pop()
            with self._path.open("r+b") as file:  # cut in place: the whole lines stay on disk
                file.truncate(sum(map(len, lines)))
                os.fsync(file.fileno())
        for line in lines:
            self._note(json.loads(line))

    def write(self, **entry: Any) -> None:
        """Write an entry, and return when it is on disk."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._note(entry)

    def _note(self, entry: Any) -> None:
        self.pending, result = entry.get("handoff"), entry.get("result", {})
        self.judged = result.get("handoffId", self.judged)
        self.executed += result.get("status") == "executed"


def decide(town: Town, past: list[str]) -> Handoff:
    """Propose something for a town. A language model would do so, with the past in its prompt."""
    projects = [p for p in town["snapshot"]["projects"] if p["status"] in ("planning", "active")]
    # What failed on this very state would fail again.
    wish: dict[str, Any] = {"type": "TOWNSFOLK_TALK", "args": {"talkType": "casual"}}
    if projects and "lastFailure" not in town:
        wish = {"type": "PROJECT_ADVANCE", "args": {"projectId": projects[0]["id"]}}
    reason = past[0] if past else "Nothing has happened yet."
    return worldengine.make_handoff(town, actor_id=ACTOR, reason=reason, **wish)


async def look_after(
    engine: worldengine.Client, journal: Journal, town_id: str, rounds: int
) -> None:
    """Have so many proposals for a town executed, or end when a person says no."""
    while journal.executed < rounds:
        try:
            handoff = journal.pending or await propose(engine, journal, town_id)
            result = await outcome(engine, handoff)
        except worldengine.WorldEngineError as error:
            if isinstance(error, worldengine.ReplyError) and error.code == "RUN_CANCELLED":
                journal.write(cancelled=str(error))  # by an operator: look again
                continue
            if engine.closed or not passes(error):
                raise
            print(f"{town_id} waits: {error}", flush=True)
            await asyncio.sleep(max(PAUSE, getattr(error, "retry_after", 0.0)))
            continue  # if the handoff is stored, the same bytes again
        if result["reasonCode"] == "APPROVAL_REQUIRED":
            continue  # nobody has decided: the same bytes again
        journal.write(result=result)
        print(town_id, result["status"], result["reasonCode"], flush=True)
        if result["reasonCode"] == "APPROVAL_DENIED":
            return  # an agent with more ideas would propose another one


async def propose(engine: worldengine.Client, journal: Journal, town_id: str) -> Handoff:
    """Store a new handoff for a town, and return it."""
    while True:
        memory = await engine.memory(town_id)
        past = [entry["message"] for entry in memory["recentChronicle"]]
        town = await engine.town(town_id)
        handoff = decide(town, past)
        failed = town["lastFailure"]["handoffId"] if "lastFailure" in town else ""
        if handoff["handoffId"] not in (journal.judged, failed):
            journal.write(handoff=handoff)
            return handoff
        # It would get the same answer again.
        print(f"{town_id} waits for another state of the town", flush=True)
        later = town
        while state(later) == state(town):
            await asyncio.sleep(PAUSE)
            later = await engine.town(town_id)


def state(town: Town) -> tuple[str, int]:
    """Return what a handoff for a town depends on."""
    return town["snapshotHash"], town["decisionEpoch"]


async def outcome(engine: worldengine.Client, handoff: Handoff) -> Result:
    """Return what became of a handoff."""
    found = await engine.send(handoff, approval_wait=3600)
    if found.status == "duplicate":  # it was sent before this process was started
        town_id = handoff["proposal"]["townId"]
        found = await engine.result(handoff["idempotencyKey"], town_id=town_id)
    return found.result


def passes(error: worldengine.WorldEngineError) -> bool:
    """Report whether the same request may succeed later."""
    if isinstance(error, worldengine.ReplyError):
        return error.status in (429, 503)
    return error.code not in ("PERMISSION_DENIED", "INVALID_ANSWER", "FORKED")


async def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("towns", nargs="*")
    parser.add_argument("--store", type=Path, default=Path("agent-store"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not args.towns:
        await once()
        return
    args.store.mkdir(parents=True, exist_ok=True)
    async with worldengine.connect(wait_on_first_connect=True) as engine:
        await asyncio.gather(
            *(
                look_after(engine, Journal(args.store, town_id), town_id, args.rounds)
                for town_id in args.towns
            )
        )


if __name__ == "__main__":
    asyncio.run(main())
