"""Answering commands: see the package's docstring for what it guarantees."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import inspect
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ..canonical import encode
from ..client import Client, connect
from ..errors import ReplyError, UnavailableError
from ..subjects import town_token, verb_subject
from ..types import Answer, Command, Snapshot, Town
from ._answers import (
    NotBegun,
    complete,
    in_progress,
    is_definite,
    is_retryable,
    moment,
    not_begun,
    now,
    read_command,
    refused,
    seconds_left,
)
from ._hosts import AlreadyHosted, Hosts
from ._memory import FileMemory, LockedMemory, Memory, Record

log = logging.getLogger("worldengine.plugin")

Apply = Callable[[Command], Answer | Awaitable[Answer]]
Answered = Callable[[Command, Mapping[str, Any] | None, bool], object]

# The reply subjects that get a command's outcome: the last ones get it.
_MOST_WAITERS = 16

trace: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar(
    "trace", default=None
)
"""In ``apply`` and ``recover``: the ``traceparent`` and ``tracestate`` of the handoff, if the agent
sent them."""
_applying: contextvars.ContextVar[str | None] = contextvars.ContextVar("applying", default=None)
# The closed plugins with calls of apply or recover that have not returned.
_unfinished: set[Plugin] = set()


class Unfinished(Exception):
    """``close`` ended before all commands were finished.

    After the next start, begun commands are in doubt until ``recover`` answers. A function in a
    thread cannot be cancelled: until it returns, the memory stays open and locked.
    """


@dataclass
class _Waiter:
    """A request that waits for the outcome."""

    reply: str
    attempt: int  # of the last request with this reply subject
    interim: bool = False  # it was answered busy or in-progress

    def gets(self, answer: Mapping[str, Any], attempt: int) -> bool:
        """Report whether it gets the answer to a logical attempt.

        After an interim answer it gets only a definite one, and it gets no retryable refusal of
        another attempt.
        """
        if is_retryable(answer) and self.attempt != attempt:
            return False
        return not self.interim or is_definite(answer)


@dataclass
class _Job:
    """A command that waits for its turn or is being applied."""

    command: Command  # of the requests before its turn the one with the latest end
    until: float  # the end of its time, by the loop's clock
    trace: Mapping[str, str]
    begun: bool = False
    waiting: list[_Waiter] = field(default_factory=list)


class Plugin:
    """Answers the requests for its towns. ``serve`` starts it, and ``close`` ends it."""

    def __init__(
        self,
        engine: Client,
        apply: Apply,
        recover: Apply | None,
        memory: Memory,
        *,
        owns_memory: bool,
        towns: Sequence[str],
        queue: int,
        concurrency: int,
        retry_after: float,
        clock_skew: float,
        answered: Answered | None,
    ) -> None:
        self.engine = engine
        """The client of the plugin's connection."""
        self.memory = memory
        self.finished = threading.Event()
        """Set after ``close``, when no call of ``apply`` or ``recover`` runs any more."""
        self._owns_memory = owns_memory
        self._apply, self._recover = apply, recover
        self._towns, self._most, self._skew = towns, queue, clock_skew
        self._retry_after, self._report = retry_after, answered or (lambda *_: None)
        self._slots = asyncio.Semaphore(concurrency)
        self._jobs: dict[str, _Job] = {}  # by applyId
        self._queues: dict[str, collections.deque[_Job]] = {}  # by town
        self._workers: set[asyncio.Task[None]] = set()
        self._unwritten: dict[str, Record] = {}  # records that the memory could not write
        self._writer = ThreadPoolExecutor(1, "worldengine-memory")
        self._threads = ThreadPoolExecutor(concurrency, "worldengine-apply")
        self._subscriptions: list[Subscription] = []
        self._outlasting: set[Future[Any]] = set()  # calls in threads, without their workers
        self._writing = threading.Lock()
        self._finishing = threading.Lock()
        self._giving_up = self._closed = False
        self._ended = asyncio.Event()
        self._answering: list[Subscription] = []  # to other plugins; none while aside
        self._aside = False  # another plugin hosts a town, and has not ended
        self._checked = 0  # how often the connection had come back when no other plugin was found
        self._checking: asyncio.Task[None] | None = None

    async def start(self, name: str) -> None:
        """Ask whether another plugin hosts the towns, and answer requests."""
        nc, hosts = self.engine.nc, Hosts(self.engine, self._towns, name)
        self._checked = nc.stats["reconnects"]
        self.engine.connection.came_back.append(lambda: self._check(hosts))
        await hosts.require_alone()
        self._answering = await hosts.answer()
        await nc.flush()
        await hosts.require_alone()  # two that started at the same moment
        for token in sorted({town_token(town) for town in self._towns}) or ["*"]:
            subject = verb_subject(self.engine.world, f"apply.{token}")
            self._subscriptions.append(await nc.subscribe(subject, cb=self._receive))
        await nc.flush()

    def _check(self, hosts: Hosts) -> None:
        """Ask again who hosts the towns: another plugin may have come meanwhile."""
        if not self._subscriptions or (self._checking and not self._checking.done()):
            return  # not started, closed, or at it
        self._checking = asyncio.ensure_future(self._become_alone(hosts))

    async def _become_alone(self, hosts: Hosts) -> None:
        """Return when no other plugin hosts a town of this one, or nobody can say so."""
        nc = self.engine.nc
        while not nc.is_closed:
            reconnects = nc.stats["reconnects"]
            try:
                await hosts.require_alone()
            except AlreadyHosted as error:
                if not self._aside:
                    log.error("%s; until then this one answers no command", error)
                self._aside = True
                await _unsubscribe(self._answering)
                # Random, so that two plugins do not find each other for ever.
                await asyncio.sleep(1 + 2 * random.random())
                continue
            except UnavailableError as error:
                log.warning("it is not known whether another plugin hosts the towns: %s", error)
            if not self._answering:  # of two that came at once, one at least finds the other now
                self._answering = await hosts.answer()
                await nc.flush()
            elif reconnects == nc.stats["reconnects"]:
                self._checked = reconnects
                if self._aside:
                    log.warning("the other plugin has ended: this one answers commands again")
                self._aside = False
                return

    async def wait_closed(self) -> None:
        """Wait until the plugin or its connection is closed."""
        ends = [self._ended.wait(), self.engine.connection.closed.wait()]
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self, timeout: float = 5.0) -> None:
        """Receive no more requests, and return when every command is answered.

        After ``timeout`` seconds it cancels ``apply`` and ``recover``, if they are coroutines, and
        raises Unfinished; commands that are not begun are then answered busy. A function in a
        thread goes on: its outcome is still written. Only then the memory of a path is closed, and
        ``finished`` is set, before which you may not close a memory of your own.
        """
        if self._checking:
            self._checking.cancel()
        await _unsubscribe(self._subscriptions)
        await _unsubscribe(self._answering)
        left = 0
        try:
            if self._workers:
                await asyncio.wait(self._workers, timeout=timeout)
        finally:
            self._giving_up, left = True, len(self._jobs)
            for worker in self._workers:
                worker.cancel()
            if self._workers:
                await asyncio.wait(self._workers, timeout=1)
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._closed = True
            _unfinished.add(self)
            self._finish_if_idle()
            with contextlib.suppress(Exception):  # the answers leave before the connection ends
                await self.engine.nc.flush(timeout=2)
            self._ended.set()
        if left:
            raise Unfinished(
                f"{left} commands are still being applied, and until they are finished another "
                "plugin cannot use the memory: after that recover decides about them, or end the "
                "process"
            )

    def _finish_if_idle(self) -> None:
        """Release the memory after close and the end of the last call, in the thread of that."""
        with self._finishing:
            if not self._closed or self._workers or self._outlasting or self.finished.is_set():
                return
            self._writer.shutdown(wait=True)
            if self._owns_memory:
                self.memory.close()
            _unfinished.discard(self)
            self.finished.set()

    async def report_town(
        self,
        town_id: str,
        change: Callable[[Snapshot], Mapping[str, Any]],
        *,
        timeout: float | None = None,
    ) -> Town:
        """Report a change that players made.

        ``change`` gets the town's snapshot and returns a JSON Merge Patch, such as
        ``{"latestNetherEvent": "a ghast"}``. After a conflict it is called again. It is not for
        ``apply``, which returns its changes in ``applied(snapshot)``: the engine changes no town
        while it waits for the answer to a command.
        """
        if _applying.get() == town_id:
            raise RuntimeError(
                "the engine waits for the answer to a command of this town: return the change in "
                "applied(snapshot), or report it in a task of its own"
            )
        while True:
            town = await self.engine.town(town_id, timeout=timeout)
            try:
                return await self.engine.patch_town(
                    town_id,
                    change(town["snapshot"]),
                    expected_snapshot_hash=town["snapshotHash"],
                    timeout=timeout,
                )
            except ReplyError as error:
                if error.code != "SNAPSHOT_CONFLICT":
                    raise

    # Requests.

    async def _receive(self, msg: Msg) -> None:
        """Receive a request. It waits for nothing but the socket."""
        arrived = asyncio.get_running_loop().time()
        try:
            command = self._read(msg)
        except (ValueError, TypeError, LookupError) as error:
            log.warning("a request on %s is not answered: %s", msg.subject, error)
            return
        if self._aside:
            log.warning("%s is left to the other plugin", command["applyId"])
            return
        job = _Job(command, arrived + seconds_left(command), _trace(msg))
        if self._checked == self.engine.nc.stats["reconnects"]:
            answer = self._admit(job, msg.reply)
        else:  # it is not known yet whether another plugin has come
            answer = self._later(command, not_begun)
        if answer is not None:
            await self._send(msg.reply, answer)
            self._answered(command, answer, True)

    def _read(self, msg: Msg) -> Command:
        if not msg.reply:
            raise ValueError("it has no reply subject")
        command = read_command(msg.data)
        # NATS checks the permission for the subject.
        subject = verb_subject(self.engine.world, f"apply.{town_token(command['townId'])}")
        if msg.subject != subject:
            raise ValueError(f"it is about the town {command['townId']!r}")
        return command

    def _admit(self, job: _Job, reply: str) -> Mapping[str, Any] | None:
        """Add a request to its command's job, or queue a job for its town.

        It returns the answer if the request is answered at once.
        """
        command = job.command
        apply_id, attempt = command["applyId"], command["logicalAttemptId"]
        if known := self._jobs.get(apply_id):
            _join(known, job, reply)
            return self._later(command, in_progress if known.begun else not_begun)
        if (record := self._recall(apply_id)) and (answer := record.answer_to(attempt)):
            return answer
        if len(self._jobs) >= self._most or self._giving_up:
            return self._later(command, not_begun)
        job.waiting.append(_Waiter(reply, attempt))
        self._jobs[apply_id] = job
        town = command["townId"]
        if town in self._queues:
            self._queues[town].append(job)
            return None
        self._queues[town] = collections.deque([job])
        worker = asyncio.create_task(self._work(town))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)
        worker.add_done_callback(lambda _: self._finish_if_idle())
        return None

    async def _work(self, town: str) -> None:
        """Do the jobs of a town, one at a time."""
        jobs = self._queues[town]
        try:
            while jobs:
                async with self._slots:
                    await self._do(jobs.popleft())
        except asyncio.CancelledError:
            for job in jobs:
                await self._finish(job, self._later(job.command, not_begun))
            raise
        finally:
            del self._queues[town]

    async def _do(self, job: _Job) -> None:
        """Do a job in its turn."""
        job.begun = True
        answer: Mapping[str, Any] | None = None
        traced, town = trace.set(job.trace), _applying.set(job.command["townId"])
        try:
            answer = await self._outcome(job)
        except Exception:  # of the memory; a request begins the job anew
            log.exception("a command is not answered: applyId %s", job.command["applyId"])
        finally:
            trace.reset(traced)
            _applying.reset(town)
            await self._finish(job, answer)

    async def _finish(self, job: _Job, answer: Mapping[str, Any] | None) -> None:
        """Remove a job, and answer its waiters."""
        self._jobs.pop(job.command["applyId"], None)
        if answer is not None:
            for waiter in job.waiting:
                if waiter.gets(answer, job.command["logicalAttemptId"]):
                    await self._send(waiter.reply, answer)
        self._answered(job.command, answer, False)

    def _answered(self, command: Command, answer: Mapping[str, Any] | None, again: bool) -> None:
        try:
            self._report(command, answer, again)
        except Exception:
            log.exception("the callback answered raised")

    async def _send(self, reply: str, answer: Mapping[str, Any]) -> None:
        """Answer a request. If that fails, the engine requests the command again."""
        try:
            await self.engine.nc.publish(reply, encode(answer))
        except Exception as error:
            log.warning("the answer to %s could not be sent: %s", answer["applyId"], error)

    # Outcomes.

    async def _outcome(self, job: _Job) -> Mapping[str, Any]:
        """Apply a command at most once."""
        command = job.command
        before = self._recall(command["applyId"])
        if before and before.begun:
            return await self._recovered(command)
        if why := self._passed(job):
            return await self._remember(
                command, complete(refused("DEADLINE_PASSED", why, retryable=True), command)
            )
        try:
            await self._put(self._record(command, None))
        except Exception as error:
            log.error("the memory cannot be written, so a command is not begun: %s", error)
            message = "The plugin's memory cannot be written."
            return complete(refused("MEMORY_FAILED", message, retryable=True), command)
        # The memory has the command as begun: from here on the command may be in the game.
        return await self._applied(command)

    def _passed(self, job: _Job) -> str:
        """Return a message if a command's time is over.

        timeoutMs is exact, except for the time that the request was on its way. The deadline is by
        the engine's clock, so it counts only if it passed longer ago than the clocks may differ.
        """
        if asyncio.get_running_loop().time() >= job.until:
            return "The command's time was over before its turn came."
        late = (now() - moment(job.command["deadline"])).total_seconds()
        if late > self._skew:
            return (
                f"The deadline passed {late:.0f} s ago by the clock of the game server's machine; "
                "if that is wrong, set the clocks."
            )
        return ""

    async def _applied(self, command: Command) -> Mapping[str, Any]:
        try:
            answer = complete(await self._call(self._apply, command), command)
        except NotBegun as error:
            log.warning("a command did not reach the game: %s: %s", command["applyId"], error)
            answer = complete(not_begun(self._retry_after), command)
        except Exception as error:
            return await self._doubt(command, error)
        if answer["status"] == "in-progress":
            return answer if self._recover else await self._doubt(command, None)
        return await self._remember(command, answer)

    async def _recovered(self, command: Command) -> Mapping[str, Any]:
        if self._recover is None:
            return await self._doubt(command, None)
        try:
            answer = complete(await self._call(self._recover, command), command)
        except Exception as error:
            return await self._doubt(command, error)
        return (
            answer if answer["status"] == "in-progress" else await self._remember(command, answer)
        )

    async def _doubt(self, command: Command, error: Exception | None) -> Mapping[str, Any]:
        """Return the answer if it is not known whether a command is applied."""
        log.error(
            "it is not known whether a command is applied: applyId %s, run %s, town %r, %s",
            command["applyId"],
            command.get("runId"),
            command["townId"],
            command["type"],
            exc_info=error,
        )
        if self._recover is not None:
            return self._later(command, in_progress)
        message = (
            "The plugin began this command and does not know whether it is in the game: compare, "
            "and town.put the true state."
        )
        return await self._remember(command, complete(refused("OUTCOME_UNKNOWN", message), command))

    async def _call(self, function: Apply, command: Command) -> Any:
        """Call apply or recover: a coroutine here, another function in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(command)
        call = self._threads.submit(contextvars.copy_context().run, function, command)
        try:
            found = await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not call.cancel():  # it runs
                self._outlasting.add(call)
                call.add_done_callback(lambda _: self._returned(call, command))
            raise
        return await found if inspect.isawaitable(found) else found

    def _returned(self, call: Future[Any], command: Command) -> None:
        """Write the outcome of a call that outlasted its worker, in the call's thread."""
        try:
            answer = complete(call.result(), command)
            if answer["status"] != "in-progress":
                self._write(self._record(command, answer))
        except NotBegun:
            self._write(self._record(command, complete(not_begun(self._retry_after), command)))
        except BaseException:
            log.exception("a command stays in doubt: applyId %s", command["applyId"])
        finally:
            self._outlasting.discard(call)
            self._finish_if_idle()

    async def _remember(self, command: Command, answer: Answer) -> Mapping[str, Any]:
        """Write a command's outcome to the memory, and return it.

        If that fails, this process still knows the outcome; for the next one it is in doubt.
        """
        record = self._record(command, answer)
        try:
            await self._put(record)
        except Exception as error:
            self._unwritten[record.apply_id] = record
            log.error("the outcome of %s cannot be written: %s", record.apply_id, error)
        return answer

    async def _put(self, record: Record) -> None:
        # A cancelled caller must not leave a write behind that it does not know of.
        loop = asyncio.get_running_loop()
        written = loop.run_in_executor(self._writer, self._write, record)
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait({written})
            raise
        self._unwritten.pop(record.apply_id, None)

    def _write(self, record: Record) -> None:
        with self._writing:
            self.memory.put(record)

    def _record(self, command: Command, answer: Mapping[str, Any] | None) -> Record:
        apply_id, attempt = command["applyId"], command["logicalAttemptId"]
        return Record(apply_id, command["townId"], attempt, now(), answer)

    def _recall(self, apply_id: str) -> Record | None:
        return self._unwritten.get(apply_id) or self.memory.get(apply_id)

    def _later(self, command: Command, kind: Callable[[float], Answer]) -> Answer:
        return complete(kind(self._retry_after), command)


async def _unsubscribe(subscriptions: list[Subscription]) -> None:
    """End subscriptions, and forget them."""
    for subscription in subscriptions:
        with contextlib.suppress(Exception):  # of a connection that is closed
            await subscription.unsubscribe()
    subscriptions.clear()


def _join(known: _Job, job: _Job, reply: str) -> None:
    """Add a repeated request to a job."""
    again = _Waiter(reply, job.command["logicalAttemptId"], interim=True)
    # All requests of an attempt have one reply subject, which gets one outcome.
    others = [waiter for waiter in known.waiting if waiter.reply != reply]
    known.waiting = [*others, again][-_MOST_WAITERS:]
    if not known.begun and job.until > known.until:
        known.command, known.until, known.trace = job.command, job.until, job.trace


def _trace(msg: Msg) -> Mapping[str, str]:
    headers = msg.headers or {}
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}


class Serving:
    """A plugin that is about to serve: for ``async with`` or ``await``."""

    def __init__(self, start: Callable[[], Awaitable[tuple[Plugin, list[Any]]]]) -> None:
        self._start = start
        self._plugin: Plugin | None = None
        self._owned: list[Any] = []

    def __await__(self) -> Generator[Any, None, Plugin]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Plugin:
        self._plugin, self._owned = await self._start()
        return self._plugin

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._plugin:
                await self._plugin.close()
        finally:
            for close in self._owned:
                await close()


def serve(
    apply: Apply,
    *,
    memory: Memory | str | Path,
    recover: Apply | None = None,
    servers: str | Sequence[str] | None = None,
    world: str = "main",
    towns: Sequence[str] = (),
    engine: Client | None = None,
    name: str = "worldengine-plugin",
    queue: int = 256,
    concurrency: int = 8,
    retry_after: float = 0.5,
    clock_skew: float = 60.0,
    answered: Answered | None = None,
    **options: Any,
) -> Serving:
    """Serve the commands of ``towns``, or of all towns of the world.

    It is for ``async with``, or for ``await``: then close the plugin and its engine. The servers
    and the options are those of ``worldengine.connect``, or ``engine`` is a client. The first
    connection is waited for, unless ``wait_on_first_connect=False``: the log has a warning, and
    refused credentials raise.

    ``serve`` asks whether another plugin hosts its towns, and again when the connection has come
    back. A plugin that finds another one then answers no command until the other has ended.

    ``memory`` is the path of a FileMemory, or a Memory. ``queue`` bounds the commands that wait or
    are being applied, ``concurrency`` the towns whose commands are applied at once. ``retry_after``
    is the engine's pause after busy and in-progress, and ``clock_skew`` how far its clock and this
    one may differ, both in seconds. ``answered(command, answer, again)`` is called after each
    answer; ``again`` means that it was given at once, without ``apply`` or ``recover``.

    It raises AlreadyHosted, a MemoryFailed, or an UnavailableError.
    """
    if isinstance(towns, str) or "" in towns:
        raise ValueError("towns are ids of towns in a list, none of them empty")
    if queue < 1 or concurrency < 1 or retry_after < 0 or clock_skew < 0:
        raise ValueError("queue and concurrency must be above 0, the times not below")

    async def start() -> tuple[Plugin, list[Any]]:
        if any(plugin.memory is memory for plugin in _unfinished):
            raise LockedMemory("a closed plugin still uses the memory: wait until it has finished")
        kept = FileMemory(memory) if isinstance(memory, (str, Path)) else memory
        owned: list[Any] = []
        try:
            client = engine
            if client is None:
                settings = {"wait_on_first_connect": True, "name": name, **options}
                client = await connect(servers, world=world, **settings)
                owned.append(client.close)
            plugin = Plugin(
                client,
                apply,
                recover,
                kept,
                owns_memory=kept is not memory,
                towns=towns,
                queue=queue,
                concurrency=concurrency,
                retry_after=retry_after,
                clock_skew=clock_skew,
                answered=answered,
            )
            try:
                await plugin.start(name)
            except BaseException:
                await plugin.close()
                raise
        except BaseException:
            for close in owned:
                await close()
            if kept is not memory:
                kept.close()
            raise
        return plugin, owned

    return Serving(start)
