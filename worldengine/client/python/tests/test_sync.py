"""The client without asyncio, and what a fork leaves of a client."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable

import pytest
from conftest import TOWN
from test_example import ENV

import worldengine
import worldengine.sync
from worldengine import UnavailableError, make_handoff
from worldengine.testing import World


def test_agent_without_asyncio(frontier: World) -> None:
    with worldengine.sync.connect(frontier.url) as engine:
        handoff = make_handoff(
            engine.town(TOWN),
            type="TOWNSFOLK_TALK",
            args={"talkType": "casual"},
            actor_id="mayor-1",
            reason="A notebook.",
        )
        result, run_id, _ = engine.send(handoff)
        assert result["status"] == "executed"
        events = [event["eventType"] for event in engine.events(run_id=run_id)]
        assert events[-1] == "RunCompleted"
        assert len(events) == 10
        for town in engine.towns(limit=1):
            assert town["townId"]
            break
        with pytest.raises(worldengine.ReplyError):
            engine.town("nowhere")
    assert engine.closed
    with pytest.raises(UnavailableError, match="closed"):
        engine.town(TOWN)


def test_threads_share_a_client(frontier: World) -> None:
    with worldengine.sync.connect(frontier.url) as engine:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(engine.town(TOWN)["townId"]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [TOWN] * 8


def test_interrupt_ends_a_call(frontier: World) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    with worldengine.sync.connect(frontier.url) as engine:
        commits = engine.commits()
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(commits)
        assert engine.town(TOWN)["townId"] == TOWN


# An iterator that nobody finishes, and the end of it: in the loop's thread, or with the process.
UNFINISHED = """
import gc, sys, threading
import worldengine.sync

engine = worldengine.sync.connect(sys.argv[1])
commits = engine.commits(after="0")
next(commits)
if sys.argv[2] == "collected":
    gc.disable()
    cycle = [commits]
    cycle.append(cycle)
    del commits, cycle
    done = threading.Event()
    engine.aio.connection.loop.call_soon_threadsafe(lambda: (gc.collect(), done.set()))
    assert done.wait(10), "the garbage collector waits for the loop"
    assert engine.town("town-quiet")
print("last line")
"""


@pytest.mark.parametrize("end", ["collected", "exit"])
def test_unfinished_iterator_blocks_nothing(frontier: World, end: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNFINISHED, frontier.url, end],
        env=ENV, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == ("last line\n", "", 0)


def test_call_in_a_callback_is_refused(frontier: World) -> None:
    with worldengine.sync.connect(frontier.url) as engine:

        async def call() -> None:
            with pytest.raises(RuntimeError, match="callback"):
                engine.town(TOWN)

        asyncio.run_coroutine_threadsafe(call(), engine.aio.connection.loop).result(10)


def _in_child(work: Callable[[], None]) -> int:
    """Return the exit status of a forked child that does some work."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_is_noticed(frontier: World) -> None:
    with worldengine.sync.connect(frontier.url) as engine:

        def child() -> None:
            with pytest.raises(UnavailableError) as caught:
                engine.town(TOWN)
            assert caught.value.code == "FORKED"
            engine.__exit__(None, None, None)  # leaves the parent's connection alone
            with worldengine.sync.connect(frontier.url) as own:
                assert own.town(TOWN)["townId"] == TOWN

        assert _in_child(child) == 0
        assert engine.town(TOWN)["townId"] == TOWN


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_fork_of_a_loop_is_noticed(engine: worldengine.Client) -> None:
    def child() -> None:
        with pytest.raises(UnavailableError) as caught:
            engine.town(TOWN).send(None)
        assert caught.value.code == "FORKED"

    assert _in_child(child) == 0
    assert (await engine.town(TOWN))["townId"] == TOWN
