"""A server with users."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import FRONTIER, TOWN, talk, until

import worldengine
from worldengine import UnavailableError, plugin
from worldengine.testing import World

PASSWORD = "a password of all users"


class Access:
    """An access file, and a server with it."""

    def __init__(self, handoffd: str, directory: Path) -> None:
        (directory / "password").write_text(PASSWORD)
        self._file = directory / "access.json"
        self.world = World(handoffd, directory)

    def admit(self, *users: dict[str, Any]) -> None:
        given = [{"passwordFile": "password", "role": "agent", **user} for user in users]
        self._file.write_text(json.dumps({"users": given}))

    def start(self) -> None:
        self.world.start("--access", str(self._file), world_file=FRONTIER)

    def connect(self, user: str, **options: Any) -> worldengine.client.Connecting:
        options = {"user": user, "password": PASSWORD, "reconnect_time_wait": 0.05, **options}
        return self.world.connect(**options)


@pytest.fixture
def access(handoffd: str, tmp_path: Path) -> Any:
    made = Access(handoffd, tmp_path)
    yield made
    made.world.stop()


async def test_users_have_their_inbox_and_their_rights(access: Access) -> None:
    access.admit({"name": "mayor"}, {"name": "eyes", "role": "observer"})
    access.start()
    async with access.connect("mayor") as engine:
        assert (await engine.whoami())["user"] == "mayor"
        handoff = await talk(engine)
        assert (await engine.send(handoff)).status == "executed"
        with pytest.raises(UnavailableError, match="may not ask") as caught:
            await engine.remove_town(TOWN, timeout=5)
        assert caught.value.code == "PERMISSION_DENIED"
        assert await engine.town(TOWN)
    url = f"nats://eyes:{PASSWORD.replace(' ', '%20')}@{access.world.address}"
    async with worldengine.connect(url) as engine:
        with pytest.raises(UnavailableError) as caught:
            await engine.send(handoff, timeout=5)
        assert caught.value.code == "PERMISSION_DENIED"
    with pytest.raises(UnavailableError, match="inbox") as caught:
        async with access.connect("mayor", inbox_prefix="_INBOX_other") as engine:
            await engine.whoami(timeout=5)
    assert caught.value.code == "PERMISSION_DENIED"
    with pytest.raises(UnavailableError, match="refuses the user") as caught:
        await access.connect("mayor", password="wrong")
    assert caught.value.code == "CONNECTION"


async def test_changed_user_reconnects_and_removed_one_ends(access: Access) -> None:
    access.admit({"name": "mayor"}, {"name": "ada", "role": "operator"})
    access.start()
    async with access.connect("mayor") as engine:
        await engine.town(TOWN)
        access.admit({"name": "mayor", "towns": [TOWN]}, {"name": "ada", "role": "operator"})
        access.world.signal(signal.SIGHUP)
        await until(lambda: engine.nc.stats["reconnects"] > 0)
        assert (await engine.town(TOWN))["townId"] == TOWN
        access.admit({"name": "ada", "role": "operator"})
        access.world.signal(signal.SIGHUP)
        with pytest.raises(UnavailableError, match="closed") as caught:
            async for _ in engine.commits():
                pass
        assert caught.value.code == "CONNECTION"
        with pytest.raises(UnavailableError, match="Authorization"):
            await engine.town(TOWN)


async def test_plugin_that_is_refused_ends(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    access.admit({"name": "game", "role": "plugin"})

    async def serve() -> None:
        async with plugin.serve(
            lambda _: plugin.applied(),
            memory=plugin.VolatileMemory(),
            servers=access.world.url,
            user="game",
            password="wrong",
            reconnect_time_wait=0.02,
        ):
            pass

    serving = asyncio.create_task(serve())
    await until(lambda: "start handoffd" in caplog.text)
    await asyncio.sleep(0.1)
    assert len(caplog.records) == 1, "a warning that says the same is not repeated"
    await asyncio.to_thread(access.start)
    with pytest.raises(UnavailableError, match="refuses the user"):
        await asyncio.wait_for(serving, 60)
    assert [record.levelname for record in caplog.records[:2]] == ["WARNING"] * 2
