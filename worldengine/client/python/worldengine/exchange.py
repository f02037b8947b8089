"""One request with its repetitions, until any attempt is answered."""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from .canonical import decode
from .connection import Connection
from .contract import WAIT_REASONS
from .errors import ReplyError, UnavailableError, WorldEngineError

# An attempt without an answer is followed by the next one after RESEND_AFTER seconds, or after half
# of the time that is left. The wait doubles with each attempt, up to LONGEST_RESEND.
RESEND_AFTER, LONGEST_RESEND = 2.0, 30.0
# The pause if no server is subscribed.
ABSENT_PAUSE = 0.25

Look = Callable[[], Awaitable[UnavailableError | None]]


class Exchange:
    """One request with its repetitions.

    All attempts have the same bytes and the same reply subject, so any answer is the answer. While
    the connection is lost nothing is sent: an attempt that is due then waits for the connection,
    and what ends meanwhile was not sent behind its caller's back.

    ``safe``: the request may be repeated although it may have been carried out. ``look`` is awaited
    before a repetition because no answer came, and returns an error if the request waits.
    ``refused`` is called with each refusal that passes with time, and with the errors of ``look``.
    ``wait`` is how long the server may wait before it answers.
    """

    def __init__(
        self,
        connection: Connection,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        *,
        timeout: float,
        wait: float = 0.0,
        safe: bool = True,
        look: Look | None = None,
        refused: Callable[[WorldEngineError], None] | None = None,
    ) -> None:
        self.connection, self.subject = connection, subject
        self.doubt = False
        """Whether an earlier attempt may have been carried out."""
        self._payload, self._headers, self._timeout = payload, headers, timeout
        self._safe, self._look, self._refused = safe, look, refused
        self._loop = connection.loop
        self._deadline = self._loop.time() + timeout  # not the clock, which may be set
        self._interval = wait + min(RESEND_AFTER, max(0.0, timeout - wait) / 2)
        self._happened: collections.deque[Any] = collections.deque()
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._inbox = ""
        self._unanswered = 0
        self._answered = False
        self._unsent = False  # an attempt waits for the connection
        self._paused: UnavailableError | None = None
        self._last: WorldEngineError | None = None

    async def answer(self) -> Msg:
        """Send the request until it is answered, and return the answer."""
        self.connection.check()
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "the client belongs to the event loop in which it connected: use one client for "
                "each loop, or worldengine.sync from other threads"
            )
        self._inbox = self.connection.inbox(self)
        try:
            await self._attempt()
            while True:
                what = await self._next()
                over = await what() if callable(what) else self._reply(what)
                if over is not None:
                    return over
        finally:
            self.connection.leave(self._inbox)
            if self._timer:
                self._timer.cancel()
            if self._looking:
                self._looking.cancel()

    # What the connection reports: see Waiter.

    def answered(self, msg: Msg) -> None:
        """Receive an answer."""
        self._happens(msg)

    def reconnected(self) -> None:
        """Send again what may have been lost with the old connection."""
        self._happens(self._back)

    def failed(self, error: UnavailableError) -> None:
        """End: no answer will come."""

        async def fail() -> None:
            raise error

        self._happens(fail)

    def _happens(self, what: Any) -> None:
        self._happened.append(what)
        if self._wake and not self._wake.done():
            self._wake.set_result(None)

    async def _next(self) -> Any:
        while not self._happened:
            self._wake = self._loop.create_future()
            await self._wake
        return self._happened.popleft()

    def _left(self) -> float:
        return self._deadline - self._loop.time()

    def _due_in(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        seconds = max(0.001, min(seconds, self._left()))
        self._timer = self._loop.call_later(seconds, self._happens, self._due)

    async def _attempt(self) -> None:
        if self._unanswered > 0:
            if not self._safe:  # it may have been carried out
                self._due_in(self._left())
                return
            self.doubt = True
        nc = self.connection.nc
        self._unsent = not nc.is_connected
        if self._unsent:
            self._due_in(self._left())
            return
        try:
            await nc.publish(self.subject, self._payload, self._inbox, self._headers)
        except nats.errors.MaxPayloadError as error:
            raise ReplyError(
                413,
                "PAYLOAD_TOO_LARGE",
                f"the request has {len(self._payload)} bytes, this NATS server takes "
                f"{nc.max_payload}",
            ) from error
        except nats.errors.Error as error:
            if nc.is_closed:
                raise self.connection.closed_error() from error
            raise UnavailableError("CONNECTION", f"the connection failed: {error}") from error
        self._unanswered += 1
        self._due_in(self._interval if self._safe else self._left())
        self._interval = min(2 * self._interval, LONGEST_RESEND)

    def _reply(self, msg: Msg) -> Msg | None:
        """Return an answer that ends the exchange; None for one after which it goes on."""
        self._unanswered -= 1
        headers = msg.headers or {}
        if headers.get("Status") == "503" and not msg.data:
            self._no_server()
            return None
        self._answered = self.connection.served = True
        refused = reply_error(msg)
        if refused is None:
            return msg
        if not self._is_repeatable(refused):
            raise refused
        self._keep(refused)
        rest = self._left() - refused.retry_after
        if rest <= 0:
            raise refused
        if refused.status == 503:
            self.doubt = True  # the handoff may be stored, and wait for the end of a pause
        # Other clients may have been refused at the same moment, so the pause has a random part.
        extra = random.random() * min(refused.retry_after, rest / 2)
        self._due_in(refused.retry_after + extra)
        return None

    def _is_repeatable(self, refused: ReplyError) -> bool:
        if refused.retry_after <= 0:
            return False
        return refused.status == 429 or (refused.status == 503 and self._safe)

    def _no_server(self) -> None:
        error = UnavailableError(
            "NO_RESPONDERS",
            f"no server answers on {self.subject}: start handoffd with this world, or use the "
            "world that it serves",
        )
        # A server that has an unanswered attempt was there, too.
        was_there = self.connection.served or self._answered or self._unanswered > 0
        if not was_there or self._left() <= ABSENT_PAUSE:
            raise error
        self._last = error
        self._due_in(ABSENT_PAUSE)

    def _keep(self, why: WorldEngineError) -> None:
        self._last = why
        if self._refused:
            self._refused(why)

    async def _back(self) -> None:
        if self._left() > 0 and (self._unsent or (self._safe and self._unanswered > 0)):
            await self._attempt()

    async def _due(self) -> None:
        if self._left() <= 0:
            raise self._late()
        if self._unanswered == 0 or not self._safe or self._look is None:
            await self._attempt()
        elif not self._looking:
            self._looking = self._loop.create_task(self._looks(self._look))
            self._due_in(self._left())

    async def _looks(self, look: Look) -> None:
        why = await look()

        async def looked() -> None:
            self._looking, self._paused = None, why
            if self._left() <= 0:
                raise self._late()
            if self._unanswered == 0:
                return  # it was refused meanwhile, and is due after the pause
            if why is None:
                await self._attempt()
                return
            if self._refused:
                self._refused(why)
            self._due_in(RESEND_AFTER)  # the handoff waits in the town's queue

        self._happens(looked)

    def _late(self) -> WorldEngineError:
        """Return the error if no answer came in time."""
        last = self._last
        if last and (self._unanswered == 0 or last.code == "EXECUTION_IN_PROGRESS"):
            return last
        if self._paused:
            return self._paused
        if last and last.code in WAIT_REASONS:
            return last  # the attempt without an answer waits for the same reason
        lost = "" if self.connection.nc.is_connected else "; the connection is lost"
        carried = "the request may have been carried out" if self._unanswered else "it was not sent"
        return UnavailableError(
            "TIMEOUT", f"no answer on {self.subject} within {self._timeout:g} s{lost}; {carried}"
        )


def reply_error(msg: Msg) -> ReplyError | None:
    """Return the error of an error reply; None for any other reply."""
    headers = msg.headers or {}
    status = headers.get("Nats-Service-Error-Code")
    if not status:
        return None
    try:
        said = decode(msg.data)["error"]
        code, message, details = said["code"], said["message"], said.get("details") or []
    except (ValueError, TypeError, LookupError):  # the headers say enough
        code, message, details = "UNKNOWN", "", []
    return ReplyError(
        _number(status) or 500,
        code,
        message or headers.get("Nats-Service-Error") or code,
        details,
        max(0, _number(headers.get("Retry-After-Ms", ""))) / 1000,
        headers.get("Run-Id") or None,
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
