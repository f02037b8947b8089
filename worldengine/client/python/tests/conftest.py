"""What the tests share: a server that they build, and worlds whose requests a test answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

import worldengine
from worldengine.canonical import decode, encode
from worldengine.testing import World
from worldengine.types import Handoff

pytest_plugins = ["worldengine.testing"]

ROOT = Path(__file__).resolve().parents[4]
FRONTIER = ROOT / "testdata/worlds/frontier.json"
TOWN = "town-threatened"


def built(name: str, directory: Path) -> str:
    """Return $HANDOFFD or $HANDOFFCTL, or the program on the PATH, or else build it."""
    if given := os.environ.get(name.upper()) or shutil.which(name):
        return given
    path = directory / name
    subprocess.run(["go", "build", "-o", path, f"./cmd/{name}"], cwd=ROOT, check=True)
    return str(path)


@pytest.fixture(scope="session")
def handoffd(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built("handoffd", tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="session")
def handoffctl(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built("handoffctl", tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="module")
def frontier(handoffd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server that the tests of a module share."""
    with World(handoffd, tmp_path_factory.mktemp("world")) as shared:
        yield shared.start(world_file=FRONTIER)


@pytest.fixture(scope="module")
def nats(handoffd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A NATS whose clients may send all that an engine sends."""
    with World(handoffd, tmp_path_factory.mktemp("nats")) as shared:
        yield shared.start("--open")


class Join(Protocol):
    """Connects to a world until the test ends."""

    async def __call__(self, to: World, **options: Any) -> worldengine.Client: ...


@pytest_asyncio.fixture
async def join() -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:

        async def connected(to: World, **options: Any) -> worldengine.Client:
            options = {"reconnect_time_wait": 0.05, **options}
            return await stack.enter_async_context(to.connect(**options))

        yield connected


@pytest_asyncio.fixture
async def engine(frontier: World, join: Join) -> worldengine.Client:
    return await join(frontier)


async def talk(
    engine: worldengine.Client, reason: str = "They are sad.", town_id: str = TOWN, **more: Any
) -> Handoff:
    town = await engine.town(town_id)
    return worldengine.make_handoff(
        town,
        type="TOWNSFOLK_TALK",
        actor_id=more.pop("actor_id", "mayor-1"),
        args={"talkType": "casual"},
        reason=reason,
        preconditions=[{"kind": "talk_type_supported", "expected": "casual"}],
        **more,
    )


def error(status: int, code: str, retry_after_ms: int = 0, **more: str) -> dict[str, Any]:
    """Return the answer of an error, for fake."""
    headers = {"Nats-Service-Error-Code": str(status), "Nats-Service-Error": code, **more}
    if retry_after_ms:
        headers["Retry-After-Ms"] = str(retry_after_ms)
    body = {"error": {"code": code, "message": code, "details": []}}
    return {"headers": headers, "body": body}


Answer = Callable[[int, Any], Any]


async def fake(engine: worldengine.Client, verb: str, answer: Answer) -> list[Any]:
    """Answer a verb of a world that no server has.

    The n-th request, from 1, gets answer(n, body); None is no answer. It returns the bodies.
    """
    asked: list[Any] = []

    async def reply(msg: Msg) -> None:
        body = decode(msg.data)
        asked.append(body)
        found = answer(len(asked), body)
        if isinstance(found, Awaitable):
            found = await found
        if found is not None:
            await respond(engine, msg, found)

    running: set[asyncio.Task[None]] = set()

    async def start(msg: Msg) -> None:
        task = asyncio.create_task(reply(msg))
        running.add(task)
        task.add_done_callback(running.discard)

    await engine.nc.subscribe(worldengine.verb_subject(engine.world, verb), cb=start)
    await engine.nc.flush()
    return asked


async def respond(engine: worldengine.Client, msg: Msg, answer: Mapping[str, Any]) -> None:
    headers = dict(answer.get("headers") or {}) or None
    await engine.nc.publish(msg.reply, encode(answer["body"]), headers=headers)


def body(of: Any, run_id: str = "") -> dict[str, Any]:
    """Return the answer with a body, for fake."""
    return {"body": of, "headers": {"Run-Id": run_id} if run_id else None}


async def until(holds: Callable[[], bool], within: float = 20.0) -> None:
    """Wait until a condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not holds():
        assert loop.time() < deadline, "it does not hold in time"
        await asyncio.sleep(0.01)
