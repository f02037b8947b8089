"""The client without asyncio, for scripts, notebooks and threads.

::

    with worldengine.sync.connect() as engine:
        town = engine.town("town-threatened")

Its calls are those of ``worldengine.Client``, and its iterators ordinary ones. One thread of its
own runs the event loop of all clients; calls may come from any thread, and wait there. An
interrupted call (Ctrl-C) ends as a cancelled one. Callbacks such as ``on_paused`` are called in the
loop's thread, and must not call the client. A forked child has no such thread: its calls raise
FORKED.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import client as aio
from .errors import UnavailableError

__all__ = ["Client", "connect"]

P = ParamSpec("P")
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own, until this process exits."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="worldengine", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work, and cancel it if the caller is interrupted."""
        try:
            self._check()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            while not concurrent.futures.wait({future}, timeout=1).done:
                self._check()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def discard(self, items: AsyncGenerator[Any, None]) -> None:
        """Close an iterator, and do not wait.

        The garbage collector may call it, also in the loop's thread and while the process exits.
        """
        if os.getpid() == self.pid:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its iterators with it
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(_close(items)))

    def _check(self) -> None:
        """Raise if a call would never get its result."""
        if os.getpid() != self.pid:
            raise UnavailableError(
                "FORKED", "this process was forked after the client connected: connect again"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback of the client must not call it: use another thread")
        if not self._thread.is_alive():
            raise UnavailableError("CONNECTION", "the client has ended, since the process exits")

    def _serve(self) -> None:
        self._loop.run_forever()
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=2))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _stop(self) -> None:
        """End the thread, which would freeze in the midst of its work when the process exits."""
        if os.getpid() == self.pid:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)


_lock = threading.Lock()
_shared: _Loop | None = None


def _loop() -> _Loop:
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = _Loop()
        return _shared


os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))


def _call(
    method: Callable[Concatenate[aio.Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self.aio, *args, **kwargs))

    return call


def _iterate(
    method: Callable[Concatenate[aio.Client, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @functools.wraps(method)
    def iterate(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        async def following() -> AsyncGenerator[T, None]:  # it is made in the loop's thread
            async for item in method(self.aio, *args, **kwargs):
                yield item

        items = following()
        try:
            while True:
                try:
                    item = self._loop.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._loop.discard(items)

    return iterate


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await items.__anext__()


async def _close(items: AsyncGenerator[Any, None]) -> None:
    with contextlib.suppress(RuntimeError):  # its last call is being cancelled, which closes it
        await items.aclose()


async def _result(work: Awaitable[T]) -> T:
    return await work


def connect(
    servers: str | Sequence[str] | None = None,
    *,
    world: str = "main",
    timeout: float = 30.0,
    **options: Any,
) -> Client:
    """Connect to a world, as ``worldengine.connect`` does. The client is a context manager."""
    connecting = aio.connect(servers, world=world, timeout=timeout, **options)
    loop = _loop()
    return Client(loop.run(_result(connecting)), loop)


class Client:
    """A client of one world, whose calls wait for their answers. See ``worldengine.Client``."""

    def __init__(self, client: aio.Client, loop: _Loop) -> None:
        self.aio = client
        """The client that does the work. It belongs to the loop's thread."""
        self._loop = loop

    @property
    def world(self) -> str:
        """The world's name."""
        return self.aio.world

    @property
    def closed(self) -> bool:
        """Whether the client is closed, by its caller or by the server."""
        return self.aio.closed

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() == self._loop.pid:
            self.close()

    close = _call(aio.Client.close)
    request = _call(aio.Client.request)
    town = _call(aio.Client.town)
    towns = _iterate(aio.Client.towns)
    town_history = _iterate(aio.Client.town_history)
    memory = _call(aio.Client.memory)
    put_town = _call(aio.Client.put_town)
    patch_town = _call(aio.Client.patch_town)
    remove_town = _call(aio.Client.remove_town)
    send = _call(aio.Client.send)
    dry_run = _call(aio.Client.dry_run)
    result = _call(aio.Client.result)
    run = _call(aio.Client.run)
    runs = _iterate(aio.Client.runs)
    run_events = _iterate(aio.Client.run_events)
    commits = _iterate(aio.Client.commits)
    events = _iterate(aio.Client.events)
    changes = _iterate(aio.Client.changes)
    approvals = _iterate(aio.Client.approvals)
    decide = _call(aio.Client.decide)
    alerts = _iterate(aio.Client.alerts)
    acknowledge_alert = _call(aio.Client.acknowledge_alert)
    pause = _call(aio.Client.pause)
    resume = _call(aio.Client.resume)
    whoami = _call(aio.Client.whoami)
