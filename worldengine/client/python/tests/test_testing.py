"""The pytest plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import FRONTIER, TOWN, built, talk

from worldengine.testing import World, fixture_files, replay


@pytest.fixture
def recording_world(handoffd: str, handoffctl: str, tmp_path: Path) -> World:
    return World(handoffd, tmp_path, handoffctl)


async def test_decisions_are_recorded_and_replayed(
    recording_world: World, handoffctl: str, tmp_path: Path
) -> None:
    with recording_world as world:
        world.start(world_file=FRONTIER)
        async with world.connect() as engine:
            assert (await engine.send(await talk(engine))).status == "executed"
        file = tmp_path / "fixtures/talk.json"
        file.parent.mkdir()
        world.record(file, town_id=TOWN)
    replay(handoffctl, file)
    file.write_text(file.read_text().replace('"EXECUTED"', '"REFUSED"', 1))
    with pytest.raises(AssertionError, match="REFUSED"):
        replay(handoffctl, file)
    (parameter,) = fixture_files(tmp_path / "fixtures")
    assert (parameter.values, parameter.id) == ((file,), "talk.json")


@pytest.mark.handoffd(world_file=FRONTIER)
def test_world_keeps_its_port_and_its_data(world: World) -> None:
    with world.sync() as engine:
        before = engine.town(TOWN)["snapshotHash"]
        changed = engine.patch_town(
            TOWN, {"latestNetherEvent": "a ghast"}, expected_snapshot_hash=before
        )
        world.kill()
        world.start()
        assert engine.town(TOWN)["snapshotHash"] == changed["snapshotHash"]
    with pytest.raises(RuntimeError, match="stop it first"):
        world.start()


def test_mistake_is_shown(handoffd: str, tmp_path: Path) -> None:
    with World(handoffd, tmp_path) as world, pytest.raises(RuntimeError, match="no-such-flag"):
        world.start("--no-such-flag")


def test_program_on_the_path_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "handoffd"
    program.touch(mode=0o755)
    monkeypatch.delenv("HANDOFFD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert built("handoffd", tmp_path / "nowhere") == str(program)
