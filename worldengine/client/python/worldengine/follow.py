"""Following the log of a world: pages of its commits from a cursor, and the events in them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from .canonical import present
from .contract import ENDS_RUN
from .errors import ReplyError, UnavailableError, WorldEngineError
from .types import Commit, RunEvent

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")


class Loss(NamedTuple):
    """The reason why commits may be missing, and the cursor from which following continues."""

    reason: Literal["GAP", "DAMAGED", "INVALID_CURSOR"]
    cursor: str


class Page(NamedTuple):
    """A page of commits. ``lost``: commits before it may be missing. ``cursor``: its end."""

    commits: list[Commit]
    cursor: str
    lost: Literal["GAP", "INVALID_CURSOR"] | None


@dataclass
class Pace:
    """The times of following in seconds, which tests change.

    ``wait``: how long the server waits for a commit; ``away``: the least pause before the client
    asks an unavailable server again.
    """

    wait: float = 10.0
    away: float = 1.0


PACE = Pace()
_RUN_ID = re.compile(r"[^|]{1,256}")
_AWAY = ("TIMEOUT", "NO_RESPONDERS", "CONNECTION")

OnLost = Callable[[Loss], object]


class Log:
    """The log of a world from a cursor on, page by page.

    ``page`` may be cancelled and called again: nothing is skipped.
    """

    def __init__(
        self,
        client: Client,
        *,
        after: str | None = None,
        town_id: str | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> None:
        client.connection.check()
        self._client, self._timeout = client, timeout
        self._query = {"townId": town_id, "limit": limit}
        self._cursor, self._is_own = after, after is not None
        self._lost: Literal["GAP", "INVALID_CURSOR"] | None = None

    async def page(self) -> Page | None:
        """Return the next page; it is empty if no commit came in time, or without a cursor.

        It returns None when the caller has closed the client. If the log does not have a cursor
        that the server gave, it has lost its end or was replaced by an older one; then following
        continues at its end. An INVALID_CURSOR about the caller's cursor is raised.
        """
        while True:
            body = {**self._query, "after": self._cursor, "waitMs": round(PACE.wait * 1000)}
            try:
                found = await patiently(self._client, "event.list", body, self._timeout)
            except ReplyError as error:
                if self._is_own or error.code != "INVALID_CURSOR":
                    raise
                self._cursor, self._lost = None, "INVALID_CURSOR"
                continue
            if found is None:
                return None
            lost = "GAP" if found.get("gap") and self._cursor != "0" else self._lost
            self._cursor, self._is_own, self._lost = found["cursor"], False, None
            return Page(found["commits"], found["cursor"], lost)


async def commits(
    client: Client, on_lost: OnLost | None = None, **what: Any
) -> AsyncGenerator[Commit, None]:
    """Follow the commits of the log. ``on_lost`` is called if some may be missing."""
    log = Log(client, **what)
    report = on_lost or (lambda _: None)
    while page := await log.page():
        if page.lost:
            report(Loss(page.lost, page.cursor))
        for commit in page.commits:
            if commit.get("damaged"):
                report(Loss("DAMAGED", commit["cursor"]))
            yield commit


async def events(
    client: Client,
    since: datetime | str | None,
    on_lost: OnLost | None,
    **what: Any,
) -> AsyncGenerator[RunEvent, None]:
    """Follow the run events of commits, from the time ``since`` on if it is given."""
    moment = _time(since) if since is not None else None
    if moment is not None:
        what["after"] = await _cursor_before(client, moment, what["town_id"], what["timeout"])
    async for commit in commits(client, on_lost, **what):
        if moment is None or _is_at_or_after(commit, moment):
            for event in commit.get("events") or ():
                yield event


async def _cursor_before(
    client: Client, moment: datetime, town_id: str | None, timeout: float | None
) -> str:
    """Return a cursor before the first commit at a time or later.

    It is found by bisection, since the times of the log do not decrease. It is "0" if following has
    ended.
    """

    async def ask(**body: Any) -> Any:
        return await patiently(client, "event.list", body, timeout)

    end = await ask()
    low, high = 0, int(end["cursor"]) if end else 0
    while low < high:
        middle = (low + high) // 2
        commit: Commit | None = None
        at = middle
        while not (commit and commit.get("at")) and at < high:  # a page may be empty, or damaged
            page = await ask(after=str(at), townId=town_id, limit=1)
            if not page:
                return "0"
            commit = page["commits"][0] if page["commits"] else None
            at = int(page["cursor"])
        if commit and commit.get("at") and at <= high and not _is_at_or_after(commit, moment):
            low = at
        else:
            high = middle
    return str(low)


async def run_events(
    client: Client, run_id: str, after_seq: int, town_id: str | None, timeout: float | None
) -> AsyncGenerator[RunEvent, None]:
    """Follow the events of one run after ``after_seq``, to its end."""
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"no run has the id {run_id!r}")
    run = _Run(client, run_id, after_seq, timeout)
    # The cursor comes first, so that no commit falls between it and the present events.
    end = await patiently(client, "event.list", {}, timeout)
    state = end and await patiently(client, "run.get", {"runId": run_id}, timeout)
    if not state:
        return
    async for event in run.missing():
        yield event
    if run.ended or (
        state["status"] in ("COMPLETED", "FAILED", "CANCELLED")
        and run.last >= state["lastEventSeq"]
    ):
        return
    about = state.get("metadata") or {}
    if town_id is None and not about.get("appendedBy"):
        # The start of another producer's run may name any town.
        town_id = (about.get("started") or {}).get("townId")
    log = Log(client, after=end["cursor"], town_id=town_id, timeout=timeout)
    while page := await log.page():
        came = [e for c in page.commits for e in c.get("events") or () if e["runId"] == run_id]
        damaged = any(commit.get("damaged") for commit in page.commits)
        if page.lost or damaged or run.skips(came):
            async for event in run.missing():
                yield event
        for event in run.next(came):
            yield event
        if run.ended:
            return


class _Run:
    """What was yielded of a run."""

    def __init__(self, client: Client, run_id: str, last: int, timeout: float | None) -> None:
        self._client, self._run_id, self._timeout = client, run_id, timeout
        self.last, self.ended = last, False

    def next(self, some: Iterable[RunEvent]) -> Iterable[RunEvent]:
        """Yield the events that were not yielded before."""
        for event in some:
            if event["runSeq"] > self.last:
                self.last = event["runSeq"]
                self.ended = self.ended or event["eventType"] in ENDS_RUN
                yield event

    def skips(self, some: list[RunEvent]) -> bool:
        """Report whether an event before one of these is missing."""
        last = self.last
        for event in some:
            if event["runSeq"] > last + 1:
                return True
            last = event["runSeq"]
        return False

    async def missing(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the server's events that were not yielded before."""
        end = self.last + 1
        while self.last < end:
            body = {"runId": self._run_id, "afterSeq": self.last}
            page = await patiently(self._client, "run.events", body, self._timeout)
            if not page or not page["events"]:
                return
            for event in self.next(page["events"]):
                yield event
            end = page["lastEventSeq"]


async def patiently(
    client: Client, verb: str, body: dict[str, Any], timeout: float | None = None
) -> Any:
    """Ask a verb until the server answers; None when the caller has closed the client."""
    while True:
        try:
            return await client.request(verb, present(body), timeout=timeout)
        except WorldEngineError as error:
            if client.closed:
                if client.connection.failure:
                    raise client.connection.failure from error
                return None
            if not is_away(error):
                raise
            asked = error.retry_after if isinstance(error, ReplyError) else 0.0
            await pause(client, max(PACE.away, asked))


def is_away(error: Exception) -> bool:
    """Report whether a repetition may help after an error."""
    if isinstance(error, ReplyError):
        return error.status in (429, 503)
    return isinstance(error, UnavailableError) and error.code in _AWAY


async def pause(client: Client, seconds: float) -> None:
    """Wait, at most until the end of the connection."""
    await within(seconds, client.connection.closed.wait())


async def within(seconds: float, work: Any) -> Any:
    """Return the result of work; None if it has none in time, and then it is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, seconds))
        return task.result() if done else None
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


_NO_TIME = (
    "since is a time, such as '2026-02-16T10:00:00Z' or a datetime, not {!r}: "
    "a cursor goes into after, and a runSeq into after_seq"
)


def _time(moment: datetime | str) -> datetime:
    """Return a moment with its zone: UTC if it names none."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(_six_decimals(moment))
        except ValueError as error:
            raise ValueError(_NO_TIME.format(moment)) from error
    if not isinstance(moment, datetime):
        raise TypeError(_NO_TIME.format(moment))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _six_decimals(text: str) -> str:
    """Return an RFC 3339 time as Python 3.10 reads it: it knows no Z, and 6 decimals or none."""
    text = re.sub(r"[Zz]$", "+00:00", text)
    return re.sub(r"\.(\d+)", lambda match: "." + f"{match[1]:0<6.6}", text)


def _is_at_or_after(commit: Commit, moment: datetime) -> bool:
    return "at" in commit and _time(commit["at"]) >= moment
