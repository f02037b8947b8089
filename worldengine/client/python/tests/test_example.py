"""The example, through the deaths of itself and of the server."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import FRONTIER, ROOT

from worldengine.testing import World

AGENT = ROOT / "examples/agent-python/agent.py"
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
