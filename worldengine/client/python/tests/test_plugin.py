"""The plugin kit: its rules, its memory, and its death at every point."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conftest import FRONTIER, TOWN, Join, talk, until
from demo_plugin import POINTS

from worldengine import ReplyError, plugin
from worldengine.canonical import decode, encode
from worldengine.client import Client
from worldengine.plugin import FileMemory, Plugin, Record, VolatileMemory, applied, refused
from worldengine.plugin._answers import now
from worldengine.testing import World

DEMO = Path(__file__).with_name("demo_plugin.py")


class Engine:
    """The engine's side: it asks a plugin as the engine does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._snapshot = json.loads(FRONTIER.read_text())[0]

    def command(self, number: int, town: str = "t", **members: Any) -> dict[str, Any]:
        snapshot = {**self._snapshot, "townId": town}
        return {
            "schemaVersion": "command-apply.v1",
            "applyId": f"handoff_{number:064x}",
            "runId": "run",
            "logicalAttemptId": 1,
            "townId": town,
            "actorId": "mayor-1",
            "type": "TOWNSFOLK_TALK",
            "args": {"talkType": "casual"},
            "command": f"townsfolk talk {town} casual",
            "decisionEpoch": 1,
            "snapshot": snapshot,
            "snapshotHash": "0" * 64,
            "expectedSnapshot": snapshot,
            "expectedSnapshotHash": "0" * 64,
            "deadline": (now() + timedelta(seconds=30)).isoformat().replace("+00:00", "Z"),
            "timeoutMs": 30_000,
            **members,
        }

    async def ask(self, command: dict[str, Any], **headers: str) -> asyncio.Queue[Any]:
        """Send a command, and return the queue of its answers."""
        answers: asyncio.Queue[Any] = asyncio.Queue()
        inbox = self.client.nc.new_inbox()

        async def receive(msg: Any) -> None:
            answers.put_nowait(decode(msg.data))

        await self.client.nc.subscribe(inbox, cb=receive)
        subject = f"worldengine.v1.{self.client.world}.apply.{command['townId']}"
        await self.client.nc.publish(subject, encode(command), inbox, headers or None)
        await self.client.nc.flush()
        return answers

    async def answer(self, command: dict[str, Any], **headers: str) -> Any:
        return await asyncio.wait_for((await self.ask(command, **headers)).get(), 60)


class Served:
    """Plugins of a test, in worlds without an engine."""

    def __init__(self, world: World, join: Join, stack: AsyncExitStack) -> None:
        self._world, self._join, self._stack, self._count = world, join, stack, 0

    async def __call__(self, apply: Any, **config: Any) -> tuple[Engine, Plugin]:
        self._count += 1
        name = config.pop("world", f"plugin-{self._count}")
        engine = Engine(await self._join(self._world, world=name))
        config.setdefault("memory", VolatileMemory())
        serving = plugin.serve(apply, servers=self._world.url, world=name, **config)
        return engine, await self._stack.enter_async_context(serving)


@pytest_asyncio.fixture
async def served(nats: World, join: Join) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        yield Served(nats, join, stack)


async def test_command_is_applied_once(served: Served) -> None:
    applications: list[str] = []

    async def apply(command: Any) -> Any:
        applications.append(command["applyId"])
        return applied()

    engine, _ = await served(apply)
    command = engine.command(1)
    first = await engine.answer(command)
    assert first == {
        "status": "applied", "schemaVersion": "command-applied.v1", "applyId": command["applyId"],
    }  # fmt: skip
    assert await engine.answer({**command, "logicalAttemptId": 2}) == first
    assert applications == [command["applyId"]]


@pytest.mark.parametrize("threads", [False, True])
async def test_order_of_towns_and_repeated_requests(served: Served, threads: bool) -> None:
    begun: list[str] = []
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait(command: Any) -> Any:
        begun.append(f"{command['townId']}{command['applyId'][-1]}")
        await gate.wait()
        return applied()

    def blocking(command: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(wait(command), loop).result(10)

    engine, _ = await served(blocking if threads else wait, queue=3)
    one = await engine.ask(engine.command(1, "a"))
    two = await engine.ask(engine.command(2, "a"))
    three = await engine.ask(engine.command(3, "b"))
    await until(lambda: len(begun) == 2)
    assert sorted(begun) == ["a1", "b3"], "towns do not wait for each other"
    again = await engine.ask(engine.command(1, "a"))
    assert (await again.get())["status"] == "in-progress"
    assert (await engine.answer(engine.command(2, "a")))["status"] == "busy"
    assert (await engine.answer(engine.command(4, "c")))["status"] == "busy", "the queue is full"
    gate.set()
    for answers in (one, two, three, again):
        assert (await asyncio.wait_for(answers.get(), 60))["status"] == "applied"
    assert begun[-1] == "a2"


async def test_retryable_refusal_is_of_its_attempt(served: Served) -> None:
    calls = 0

    async def apply(command: Any) -> Any:
        nonlocal calls
        calls += 1
        return refused("CHUNK_NOT_LOADED", retryable=True) if calls == 1 else applied()

    engine, _ = await served(apply)
    for attempt, status in [(1, "refused"), (1, "refused"), (2, "applied"), (1, "applied")]:
        command = engine.command(1, logicalAttemptId=attempt)
        assert (await engine.answer(command))["status"] == status
    assert calls == 2


async def test_late_commands_are_not_begun(served: Served) -> None:
    async def apply(command: Any) -> Any:
        return applied()

    engine, _ = await served(apply)
    old = (now() - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    cases: list[dict[str, Any]] = [{"timeoutMs": 0}, {"deadline": old}]
    for number, late in enumerate(cases):
        answer = await engine.answer(engine.command(number, **late))
        assert (answer["reasonCode"], answer["retryable"]) == ("DEADLINE_PASSED", True)
        again = engine.command(number, logicalAttemptId=2)
        assert (await engine.answer(again))["status"] == "applied"


@pytest.mark.parametrize("wrong", [None, {"status": "done"}, refused("no code"), OSError("gone")])
async def test_without_recover_a_doubt_is_for_good(served: Served, wrong: Any) -> None:
    async def apply(command: Any) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    engine, _ = await served(apply)
    for _ in range(2):
        answer = await engine.answer(engine.command(1))
        assert (answer["status"], answer["reasonCode"]) == ("refused", "OUTCOME_UNKNOWN")
        assert not answer["retryable"]


async def test_recover_looks_into_the_game(served: Served) -> None:
    asked: list[str] = []

    async def apply(command: Any) -> Any:
        asked.append("apply")
        if len(asked) == 1:
            raise OSError("the console is gone")
        return applied()

    async def recover(command: Any) -> Any:
        asked.append("recover")
        if len(asked) == 2:
            raise OSError("still gone")
        return plugin.not_begun()

    engine, _ = await served(apply, recover=recover)
    said = [(await engine.answer(engine.command(1)))["status"] for _ in range(5)]
    assert said == ["in-progress", "in-progress", "busy", "applied", "applied"]
    assert asked == ["apply", "recover", "recover", "apply"]


async def test_not_begun_is_asked_again(served: Served) -> None:
    calls = 0

    async def apply(command: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise plugin.NotBegun("the game is away")
        return applied()

    engine, _ = await served(apply)
    said = [(await engine.answer(engine.command(1)))["status"] for _ in range(2)]
    assert (said, calls) == (["busy", "applied"], 2)


async def test_failed_memory_begins_nothing(served: Served) -> None:
    class Full(VolatileMemory):
        def put(self, record: Record) -> None:
            raise OSError("no space left on device")

    async def apply(command: Any) -> Any:
        raise AssertionError("it is begun")

    engine, _ = await served(apply, memory=Full())
    answer = await engine.answer(engine.command(1))
    assert (answer["reasonCode"], answer["retryable"]) == ("MEMORY_FAILED", True)


async def test_what_is_no_command_is_not_answered(served: Served) -> None:
    async def apply(command: Any) -> Any:
        return applied()

    engine, _ = await served(apply)
    nc = engine.client.nc
    for wrong in (b"", b"{", b"[]", encode({}), encode(engine.command(1, "other")),
                  encode(engine.command(1, schemaVersion="command-apply.v2"))):  # fmt: skip
        await nc.publish(f"worldengine.v1.{engine.client.world}.apply.t", wrong, nc.new_inbox())
    assert (await engine.answer(engine.command(2, further="member")))["status"] == "applied"


async def test_trace_is_known_to_apply(served: Served) -> None:
    def apply(command: Any) -> Any:
        return refused("SEEN", json.dumps(plugin.trace.get()))

    engine, _ = await served(apply)
    answer = await engine.answer(engine.command(1), traceparent="00-1-2-01")
    assert json.loads(answer["message"]) == {"traceparent": "00-1-2-01"}


async def test_second_plugin_does_not_start(served: Served) -> None:
    async def apply(command: Any) -> Any:
        return applied()

    await served(apply, world="hosted", towns=["a", "b"], name="first")
    with pytest.raises(plugin.AlreadyHosted, match="first"):
        await served(apply, world="hosted", towns=["b"])
    await served(apply, world="hosted", towns=["c"])
    with pytest.raises(plugin.AlreadyHosted, match="towns of the world"):
        await served(apply, world="hosted")


async def test_plugin_asks_again_after_a_reconnect(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async def apply(command: Any) -> Any:
        return applied()

    engine, opened = await served(apply, towns=["t"], reconnect_time_wait=0.02)
    nc = engine.client.nc

    async def another(msg: Any) -> None:
        await nc.publish(msg.reply, b'{"name": "another"}')

    hosts = f"worldengine.v1.{engine.client.world}.hosts.t"
    other = await nc.subscribe(hosts, cb=another)
    await nc.flush()
    transport: Any = opened.engine.nc._transport
    transport.close()
    await until(lambda: "another plugin hosts 't'" in caplog.text)
    left = await engine.ask(engine.command(1))
    await until(lambda: "is left to the other plugin" in caplog.text)
    assert left.empty()

    await other.unsubscribe()
    await until(lambda: "answers commands again" in caplog.text)
    assert (await engine.answer(engine.command(2)))["status"] == "applied"


async def test_close_answers_what_is_left(served: Served) -> None:
    gate = asyncio.Event()

    async def apply(command: Any) -> Any:
        await gate.wait()
        return applied()

    engine, opened = await served(apply)
    running = await engine.ask(engine.command(1))
    waiting = await engine.ask(engine.command(2))
    await asyncio.sleep(1)  # until both have arrived
    with pytest.raises(plugin.Unfinished):
        await opened.close(timeout=0.1)
    assert (await asyncio.wait_for(waiting.get(), 60))["status"] == "busy"
    assert running.empty()
    assert opened.memory.get(engine.command(1)["applyId"])


@pytest.mark.parametrize("own", [False, True])
async def test_call_that_outlasts_close_keeps_the_memory(
    served: Served, tmp_path: Path, own: bool
) -> None:
    calls: list[str] = []
    gate = threading.Event()

    def apply(command: Any) -> Any:
        calls.append(command["applyId"])
        assert gate.wait(20)
        return applied()

    memory: Any = VolatileMemory() if own else tmp_path / "memory"
    config = {"memory": memory, "recover": lambda _: plugin.not_begun(), "world": "outlasting"}
    engine, opened = await served(apply, **config)
    await engine.ask(engine.command(1))
    await until(lambda: bool(calls))
    with pytest.raises(plugin.Unfinished):
        await opened.close(timeout=0.1)
    with pytest.raises(plugin.LockedMemory):
        await served(apply, **config)
    gate.set()
    assert await asyncio.to_thread(opened.finished.wait, 20)
    engine, _ = await served(apply, **config)
    assert (await engine.answer(engine.command(1)))["status"] == "applied"
    assert len(calls) == 1


async def test_memory_outlives_a_coroutine_that_is_slow_to_cancel(
    served: Served, tmp_path: Path
) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def apply(command: Any) -> Any:
        begun.set()
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return applied()

    engine, opened = await served(apply, memory=tmp_path / "memory")
    await engine.ask(engine.command(1))
    await begun.wait()
    with pytest.raises(plugin.Unfinished):
        await opened.close(timeout=0.1)
    with pytest.raises(plugin.LockedMemory):
        FileMemory(tmp_path / "memory")
    gate.set()
    assert await asyncio.to_thread(opened.finished.wait, 20)
    memory = FileMemory(tmp_path / "memory")
    assert memory.get(engine.command(1)["applyId"]).answer["status"] == "applied"  # type: ignore
    memory.close()


# The memory.


def _record(number: int, answer: Any = None, **more: Any) -> Record:
    return Record(f"id-{number}", "t", 1, more.get("at", now()), answer)


def test_memory_survives_a_crash_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory = FileMemory(path)
    memory.put(_record(1))
    memory.put(_record(2))
    memory.put(_record(2, {"status": "applied"}))
    with pytest.raises(plugin.LockedMemory):
        FileMemory(path)
    memory.close()
    with pytest.raises(plugin.BrokenMemory):
        memory.put(_record(3))
    with path.open("ab") as file:
        file.write(b'{"applyId":"id-3","townId')
    memory = FileMemory(path)
    assert [record.apply_id for record in memory.begun] == ["id-1"]
    assert (memory.get("id-2") or _record(0)).answer == {"status": "applied"}
    assert memory.get("id-3") is None
    memory.put(_record(3))
    memory.close()
    memory = FileMemory(path)
    assert [record.apply_id for record in memory.begun] == ["id-1", "id-3"]
    memory.close()


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_text("my diary\n")
    with pytest.raises(plugin.NotAMemory):
        FileMemory(path)
    assert path.read_text() == "my diary\n"
    path.write_text('{"memory":"worldengine-plugin.v1"}\n{"x"\n{"applyId":"1"}\n')
    with pytest.raises(plugin.CorruptMemory):
        FileMemory(path)


def test_memory_is_bounded_and_keeps_doubts(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path / "memory", max_records=10)
    memory.put(_record(0))
    for number in range(1, 600):
        memory.put(_record(number))
        memory.put(_record(number, {"status": "applied"}))
    assert [record.apply_id for record in memory.begun] == ["id-0"]
    assert memory.get("id-589") is None
    assert memory.get("id-599")
    assert len(memory.path.read_bytes().splitlines()) < 1100
    memory.close()
    old = VolatileMemory(retention=timedelta(days=1))
    old.put(_record(1, at=now() - timedelta(days=2)))
    assert old.get("id-1") is None


def test_texts_are_safe() -> None:
    text = "§cA\nb\u202ec" + "x" * 300
    safe = plugin.safe_text(text, 20)
    assert safe == "cA b cxxxxxxxxxxxxx…"
    assert plugin.safe_text("Köln 🏰") == "Köln 🏰"


# A plugin of its own process.


class Demo:
    """The demo plugin."""

    def __init__(self, url: str, world: str, directory: Path, town: str = TOWN) -> None:
        self.game = directory / "game"
        self._command = [
            sys.executable, str(DEMO), "--server", url, "--world", world, "--town", town,
            "--memory", str(directory / "memory"), "--game", str(self.game),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, kill: str = "") -> None:
        """Start it, and return when it serves or has died."""
        self._process = subprocess.Popen(
            [*self._command, "--kill", kill], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        self._process.stdout.close()
        assert line == b"serving\n"

    def ended(self) -> bool:
        assert self._process
        return self._process.poll() is not None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(how)
        return self._process.wait(20)


@pytest.fixture
def demo(nats: World, tmp_path: Path) -> Iterator[Demo]:
    made = Demo(nats.url, "checked", tmp_path)
    yield made
    made.stop(signal.SIGKILL)


async def test_plugin_check_passes(demo: Demo, nats: World, handoffctl: str) -> None:
    """Every rule of docs/plugin-protocol.md, also after a restart."""
    await asyncio.to_thread(demo.start)
    check = await asyncio.create_subprocess_exec(
        handoffctl, "plugin", "check", f"worldengine.v1.checked.apply.{TOWN}", "--restart", "60s",
        "--server", nats.url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert check.stderr
    assert check.stdout
    while line := await check.stderr.readline():
        if b"start" in line:  # the request for a restart
            assert await asyncio.to_thread(demo.stop) == 0
            await asyncio.sleep(1)
            await asyncio.to_thread(demo.start)
    report = (await check.stdout.read()).decode()
    assert await check.wait() == 0, report
    assert " 0 broken, 0 not seen" in report, report
    changes = demo.game.read_text().split()
    assert len(changes) == len(set(changes))


@pytest.mark.handoffd("--apply", "plugin", "--plugin-resend", "200ms", world_file=FRONTIER)
async def test_kills_at_every_point(
    world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whenever the plugin dies, each accepted command is in the game once."""
    kills = int(os.environ.get("WORLDENGINE_KILLS", "6"))
    demo = Demo(world.url, "main", tmp_path)
    sent: list[str] = []
    async with world.connect(timeout=60) as engine:
        try:
            for kill in range(kills):
                await asyncio.to_thread(demo.start, POINTS[kill % len(POINTS)])
                handoff = await talk(engine, f"Kill {kill}.")
                sending = asyncio.create_task(engine.send(handoff))
                await until(demo.ended)
                await asyncio.to_thread(demo.start)
                outcome = await sending
                assert outcome.status == "executed", outcome
                sent.append(handoff["handoffId"])
                await asyncio.to_thread(demo.stop, signal.SIGKILL)
        finally:
            demo.stop(signal.SIGKILL)
    assert demo.game.read_text().split() == sent


@pytest.mark.handoffd("--apply", "plugin", world_file=FRONTIER)
async def test_plugin_reports_what_players_do(world: World) -> None:
    inner: list[Exception] = []

    async def apply(command: Any) -> Any:
        try:
            await serving.report_town(TOWN, lambda snapshot: {})
        except RuntimeError as error:
            inner.append(error)
        return applied({**command["expectedSnapshot"], "latestNetherEvent": "a ghast"})

    async with (
        world.connect() as engine,
        plugin.serve(apply, memory=VolatileMemory(), servers=world.url) as serving,
    ):
        await engine.send(await talk(engine))
        assert (await engine.town(TOWN))["snapshot"]["latestNetherEvent"] == "a ghast"
        assert len(inner) == 1
        conflicts = 0

        def change(snapshot: Any) -> dict[str, Any]:
            nonlocal conflicts
            conflicts += 1
            hope = round(snapshot["pressure"]["hope"] - 0.1, 4)
            return {"pressure": {"hope": hope}}

        town = await engine.town(TOWN)
        await asyncio.gather(*(serving.report_town(TOWN, change) for _ in range(3)))
        after = (await engine.town(TOWN))["snapshot"]["pressure"]["hope"]
        assert after == pytest.approx(town["snapshot"]["pressure"]["hope"] - 0.3)
        with pytest.raises(ReplyError):
            await serving.report_town("nowhere", change)
