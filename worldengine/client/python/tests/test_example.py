"""The example, through the deaths of itself and of the server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import FRONTIER, ROOT, TOWN, until

from worldengine import plugin
from worldengine.testing import World

AGENT = ROOT / "examples/agent-python/agent.py"
sys.path.insert(0, str(AGENT.parent))
import agent as example  # noqa: E402

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


@pytest.mark.handoffd(world_file=FRONTIER)
def test_one_proposal(world: World) -> None:
    ran = subprocess.run(
        [sys.executable, AGENT],
        env={**ENV, "NATS_URL": world.url},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("executed EXECUTED result_")
    assert lines[-1].startswith("10 RunCompleted")


@pytest.mark.handoffd(world_file=FRONTIER)
def test_nothing_is_done_twice(world: World, tmp_path: Path) -> None:
    kills = int(os.environ.get("WORLDENGINE_KILLS", "6"))
    rounds, busy = 30 * kills, 0
    with world.sync() as engine:
        before = {town["townId"]: town["decisionEpoch"] for town in engine.towns()}
        command = [sys.executable, str(AGENT), "--store", str(tmp_path / "store")]
        command += ["--rounds", str(rounds), *before]

        def start() -> subprocess.Popen[bytes]:
            with (tmp_path / "agent.log").open("ab") as log:
                return subprocess.Popen(command, env={**ENV, "NATS_URL": world.url}, stdout=log)

        agent, draw = start(), random.Random(1)
        for kill in range(kills):
            time.sleep(draw.uniform(0.4, 0.8))
            busy += agent.poll() is None
            if kill % 2:
                world.kill()
                world.start()
            else:
                agent.kill()
                agent.wait()
                agent = start()
        assert agent.wait(300) == 0
        for town in engine.towns():
            assert town["decisionEpoch"] == before[town["townId"]] + rounds
        executed = [run for run in engine.runs() if run.get("resultStatus") == "executed"]
        assert len(executed) == rounds * len(before)
    assert busy >= kills // 3, "the agent was killed while it worked"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "PAUSE", 0.02)


@pytest.mark.usefixtures("quick")
@pytest.mark.handoffd(world_file=FRONTIER)
async def test_agent_waits_for_a_server_that_is_away(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world.connect(timeout=0.3, reconnect_time_wait=0.05) as engine:
        world.kill()
        journal, said = example.Journal(tmp_path, TOWN), ""
        looking = asyncio.create_task(example.look_after(engine, journal, TOWN, 2))

        def waits() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "waits:" in said or looking.done()

        await until(waits)
        await asyncio.to_thread(world.start)
        await asyncio.wait_for(looking, 60)
    assert journal.executed == 2


@pytest.mark.usefixtures("quick")
@pytest.mark.handoffd("--apply", "plugin", world_file=FRONTIER)
async def test_agent_does_not_repeat_what_failed(world: World, tmp_path: Path) -> None:
    refuses, asked = True, 0

    def apply(command: Any) -> Any:
        nonlocal asked
        asked += 1
        return plugin.refused("NOT_NOW") if refuses else plugin.applied()

    async with (
        world.connect() as engine,
        plugin.serve(apply, memory=plugin.VolatileMemory(), servers=world.url),
    ):
        journal = example.Journal(tmp_path, TOWN)
        looking = asyncio.create_task(example.look_after(engine, journal, TOWN, 1))
        await until(lambda: asked == 2)  # the project, and then the talk
        await asyncio.sleep(0.5)
        runs = [run async for run in engine.runs()]
        assert len(runs) == 2, "it waits for another state"
        refuses, town = False, await engine.town(TOWN)
        await engine.patch_town(
            TOWN, {"latestNetherEvent": "a ghast"}, expected_snapshot_hash=town["snapshotHash"]
        )
        await asyncio.wait_for(looking, 60)
    assert (journal.executed, asked) == (1, 3)


def test_torn_journal_keeps_its_pending_handoff(
    frontier: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with frontier.sync() as engine:
        handoff = example.decide(engine.town(TOWN), [])
    example.Journal(tmp_path, TOWN).write(handoff=handoff)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"result":{"stat')

    def crash(*_: Any, **__: Any) -> None:
        raise OSError("the machine ends")

    monkeypatch.setattr(Path, "write_bytes", crash)
    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="the machine ends"):
        example.Journal(tmp_path, TOWN)
    monkeypatch.undo()
    assert path.read_bytes() == whole
    assert json.loads(whole)["handoff"] == example.Journal(tmp_path, TOWN).pending == handoff
