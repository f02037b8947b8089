"""Measures executed handoffs a second, 64 in flight to 64 towns, and the memory of this process.

python measure.py URL COUNT
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import worldengine
from worldengine.types import Snapshot

TOWNS = 64


def memory() -> float:
    """Return the memory that this process has now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def snapshot(town_id: str) -> Snapshot:
    return {
        "schemaVersion": "snapshot.v1",
        "day": 0,
        "townId": town_id,
        "mission": None,
        "sideQuests": [],
        "pressure": {"threat": 0, "scarcity": 0, "hope": 0, "dread": 0},
        "projects": [],
        "latestNetherEvent": None,
    }


async def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    done = 0
    async with worldengine.connect(url, timeout=120) as engine:

        async def work(number: int) -> None:
            nonlocal done
            town = await engine.put_town(snapshot(f"python-{time.time_ns()}-{number}"))
            state: dict[str, Any] = dict(town)
            while done < count:
                done += 1
                handoff = worldengine.make_handoff(
                    state,
                    type="TOWNSFOLK_TALK",
                    args={"talkType": "casual"},
                    actor_id="mayor-1",
                    reason="Measured.",
                )
                result = (await engine.send(handoff)).result
                assert result["status"] == "executed", result
                state["snapshotHash"] = result["worldState"]["postExecutionSnapshotHash"]
                state["decisionEpoch"] = result["worldState"]["postExecutionDecisionEpoch"]
                if done % (count // 10) == 0:
                    print(f"{done} handoffs, {memory():.1f} MB", file=sys.stderr)

        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(work(number) for number in range(TOWNS)))
        took, used = time.monotonic() - began, time.process_time() - cpu
    print(f"python: {done / took:.0f} handoffs/s, {1e6 * used / done:.0f} µs of CPU each")


if __name__ == "__main__":
    asyncio.run(main())
