"""The client of one world."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, cast

from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from . import follow, sending
from .canonical import decode, encode, present
from .connection import DEFAULT_SERVER, Connection, environment
from .contract import CHANGING
from .errors import UnavailableError
from .exchange import Exchange
from .follow import OnLost
from .sending import AnyHandoff, DryRun, OnApproval, OnPaused, Outcome, Sending
from .subjects import checked_world, verb_subject
from .types import (
    Alert,
    Approval,
    Commit,
    Control,
    Decided,
    ListedTown,
    ListedWorld,
    Memory,
    RemovedTown,
    Revision,
    Run,
    RunEvent,
    Snapshot,
    Town,
    Whoami,
)

__all__ = ["Client", "Connecting", "connect"]

_VERB = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_HEADER = re.compile(r"[!-9;-~]+: [^\r\n]*")


class Connecting:
    """A client that is about to connect: for ``async with`` or ``await``."""

    def __init__(
        self, servers: str | Sequence[str] | None, world: str, timeout: float, options: Any
    ) -> None:
        self._servers, self._world, self._timeout = servers, checked_world(world), timeout
        self._options = options
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client:
            await self._client.close()

    async def _connect(self) -> Client:
        options, servers = dict(self._options), self._servers
        if servers is None:
            options = {**environment(), **options}
            servers = options.pop("servers", DEFAULT_SERVER)
        options["wait"] = options.pop("wait_on_first_connect", False)
        servers = servers if isinstance(servers, str) else list(servers)
        connection = await Connection.open(servers, **options)
        return Client(connection, world=self._world, timeout=self._timeout)


def connect(
    servers: str | Sequence[str] | None = None,
    *,
    world: str = "main",
    timeout: float = 30.0,
    **options: Any,
) -> Connecting:
    """Connect to a world; it is for ``async with`` and for ``await``.

    The client reconnects until it is closed. ``servers`` is an address or several; without it the
    environment names the server and the credentials (``NATS_URL``, ``NATS_USER``, …: see
    ``environment``), and else it is ``nats://127.0.0.1:4222``. ``timeout`` is the time for a call
    with all its repetitions, in seconds. The further options are those of ``nats.connect``, such as
    ``user``, ``password``, ``token``, ``tls`` and ``user_credentials``. The inbox prefix of a user
    with a password is ``_INBOX_<user>``, as access control requires.

    If the first connection fails it raises an UnavailableError with the code CONNECTION. With
    ``wait_on_first_connect=True`` it warns in the log and tries again, until the server refuses the
    credentials twice in a row.

    A client belongs to the event loop and the process in which it connected. In a forked child its
    calls raise FORKED. Threads without a loop use ``worldengine.sync``.
    """
    return Connecting(servers, world, timeout, options)


class Client:
    """A client of one world over one connection, from ``connect``.

    Every call has ``timeout``, in seconds: the time for the call with all its repetitions. Until
    then it asks again if that can help: after 429 and 503 as the server says, and with the same
    bytes after silence. A change without a key (``put_town``, ``patch_town``, ``decide``, …) is not
    repeated if it may have been carried out. A call may be cancelled: it then sends nothing more.

    Calls raise a ReplyError (the server's answer) or an UnavailableError (no answer).
    """

    def __init__(
        self, connection: Connection, *, world: str = "main", timeout: float = 30.0
    ) -> None:
        self.connection = connection
        self.world = checked_world(world)
        self.timeout = timeout

    @property
    def nc(self) -> NATS:
        """The connection to NATS."""
        return self.connection.nc

    @property
    def closed(self) -> bool:
        """Whether the client is closed, by its caller or by the server."""
        return self.connection.closed.is_set() or self.nc.is_closed

    async def close(self) -> None:
        """Close the connection after sent messages have left. It may be called again."""
        await self.connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Any verb.

    async def request(
        self,
        verb: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request to a verb, such as ``town.get``, and return the reply.

        A ``waitMs`` of the request is added to the timeout.
        """
        body = body or {}
        wait_ms = body.get("waitMs") or 0
        if not isinstance(wait_ms, (int, float)):
            raise ValueError(f"waitMs must be a number of milliseconds, not {wait_ms!r}")
        wait = wait_ms / 1000
        msg, _ = await self.ask(verb, encode(body), timeout=timeout, headers=headers, wait=wait)
        try:
            return decode(msg.data)
        except ValueError as error:
            raise UnavailableError("INVALID_ANSWER", "the answer is no JSON") from error

    async def ask(
        self,
        verb: str,
        payload: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        revision: int | None = None,
        wait: float = 0.0,
        **more: Any,
    ) -> tuple[Msg, bool]:
        """Send bytes to a verb, and return the reply as it came.

        The second value says whether an earlier attempt may have been carried out. ``wait`` is how
        long the server may wait before it answers, in seconds.
        """
        if not _VERB.fullmatch(verb):
            raise ValueError(f"a verb is a name such as town.get, not {verb!r}")
        sent = dict(headers or {})
        for name, value in sent.items():
            if not _HEADER.fullmatch(f"{name}: {value}"):
                raise ValueError(
                    f"a header is a name of ASCII and one line, not {name!r}: {value!r}"
                )
        if revision is not None:
            sent.setdefault("Execution-Result-Revision", str(revision))
        exchange = Exchange(
            self.connection,
            verb_subject(self.world, verb),
            payload,
            sent or None,
            timeout=(self.timeout if timeout is None else timeout) + wait,
            wait=wait,
            safe=verb not in CHANGING,
            **more,
        )
        return await exchange.answer(), exchange.doubt

    async def _rows(
        self, verb: str, member: str, query: dict[str, Any], timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        """Iterate over the rows of a list, page by page. Each page has them as ``member``."""
        while True:
            page = await self.request(verb, present(query), timeout=timeout)
            for row in page[member]:
                yield row
            if page.get("next") is None:
                return
            query = {**query, "after": page["next"]}

    # Towns.

    async def town(self, town_id: str, *, timeout: float | None = None) -> Town:
        """Return a town with its snapshot, ``snapshotHash`` and ``decisionEpoch``."""
        return cast(Town, await self.request("town.get", {"townId": town_id}, timeout=timeout))

    def towns(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        text: str | None = None,
        state: str | None = None,
        sort: str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[ListedTown, None]:
        """Iterate over the towns.

        ``after`` is the town before the first one, ``limit`` the size of a page; ``text``,
        ``state`` and ``sort`` are the filters and the order of town.list.
        """
        query = {"after": after, "limit": limit, "text": text, "state": state, "sort": sort}
        return self._rows("town.list", "towns", query, timeout)

    def worlds(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[ListedWorld, None]:
        """Iterate over the worlds of the server that the user may use, in the order of their names.

        ``after`` is the world before the first one, ``limit`` the size of a page.
        """
        return self._rows("worlds.list", "worlds", {"after": after, "limit": limit}, timeout)

    def town_history(
        self,
        town_id: str,
        *,
        before: int | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Revision, None]:
        """Iterate over the revisions of a town before a revision, the newest first."""
        query = {"townId": town_id, "before": before, "limit": limit}
        return self._revisions(query, timeout)

    async def _revisions(
        self, query: dict[str, Any], timeout: float | None
    ) -> AsyncGenerator[Revision, None]:
        while True:
            page = await self.request("town.history", present(query), timeout=timeout)
            for revision in page["revisions"]:
                yield revision
            if page.get("next") is None:
                return
            query = {**query, "before": page["next"]}

    async def memory(
        self,
        town_id: str | None = None,
        *,
        chronicle_limit: int = 3,
        history_limit: int = 4,
        timeout: float | None = None,
    ) -> Memory:
        """Return the memory of a town, or of all towns: a world-memory-context.v1, for a prompt.

        The limits are 1 to 5 entries of the chronicle and of the history.
        """
        scope = {
            "townId": town_id,
            "factionId": None,
            "chronicleLimit": chronicle_limit,
            "historyLimit": history_limit,
        }
        asked = {"type": "world-memory-request.v1", "schemaVersion": 1, "scope": scope}
        return cast(Memory, await self.request("memory.get", asked, timeout=timeout))

    async def put_town(
        self,
        snapshot: Snapshot | Mapping[str, Any],
        *,
        expected_snapshot_hash: str | None = None,
        apply: str | None = None,
        approval: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Town:
        """Create a town, or with ``expected_snapshot_hash`` replace exactly that state of it.

        ``apply`` is who applies its commands (``local``, ``plugin`` or ``rcon``), ``approval`` the
        types of proposal that a person decides about. Without them the town keeps its own.
        """
        body = {
            "snapshot": snapshot,
            "expectedSnapshotHash": expected_snapshot_hash,
            "apply": apply,
            "approval": approval,
        }
        return cast(Town, await self.request("town.put", present(body), timeout=timeout))

    async def patch_town(
        self,
        town_id: str,
        patch: Mapping[str, Any],
        *,
        expected_snapshot_hash: str,
        approval: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Town:
        """Change members of the state with that hash, by a JSON Merge Patch (RFC 7396).

        The patch is such as ``{"pressure": {"hope": 0.75}}``. A list is replaced as a whole.
        """
        body = {
            "townId": town_id,
            "patch": patch,
            "expectedSnapshotHash": expected_snapshot_hash,
            "approval": approval,
        }
        return cast(Town, await self.request("town.patch", present(body), timeout=timeout))

    async def remove_town(self, town_id: str, *, timeout: float | None = None) -> RemovedTown:
        """Remove a town. It returns its last state. Operators may call it."""
        body = {"townId": town_id}
        return cast(RemovedTown, await self.request("town.remove", body, timeout=timeout))

    # Handoffs.

    async def send(
        self,
        handoff: AnyHandoff,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        revision: Literal[0, 1] | None = None,
        on_paused: OnPaused | None = None,
        approval_wait: float = 0.0,
        on_approval: OnApproval | None = None,
    ) -> Outcome:
        """Send a handoff until it is answered, and return its verified outcome.

        The same handoff may be sent again at any time, also after a cancellation or by another
        process, since a town accepts a key once. So store it before you send it. It is a dict, or
        JSON as ``bytes`` or ``str``, which go out as they are. If an attempt of this call was
        accepted, and its answer was lost or was a 503, the next attempt is a duplicate. Then
        ``send`` returns the first result. After a cancelled call that was accepted, ``send``
        returns the duplicate, and ``engine.result(key, town_id=...)`` the first result.

        If the town is paused until the call ends, the code of the error is TOWN_PAUSED or
        WORLD_PAUSED; a call that ends before the server's --pause-wait gets TIMEOUT. If the town's
        game is absent until then, it is PLUGIN_ABSENT. If the handoff is accepted and its command
        waits for the game, it is EXECUTION_IN_PROGRESS, and the error has the ``run_id``.
        ``on_paused`` is called when the handoff waits so.

        If the handoff needs a person's approval, ``send`` waits ``approval_wait`` seconds for the
        decision, and sends it again. Without it, or after it, the result is rejected with
        APPROVAL_REQUIRED. ``on_approval`` is called while it waits, about once a minute.

        ``headers`` are further headers: the plugin and the run events get ``traceparent`` and
        ``tracestate``. ``revision`` is the one of the result; by default the server's.
        """
        sent = Sending(
            self,
            handoff,
            timeout=timeout,
            headers=headers,
            revision=revision,
            on_paused=on_paused,
        )
        return await sent.decided(approval_wait, on_approval)

    async def dry_run(
        self,
        handoff: AnyHandoff,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        revision: Literal[0, 1] | None = None,
    ) -> DryRun:
        """Return the result that a handoff would get now. The server stores nothing."""
        return await Sending(
            self, handoff, timeout=timeout, headers=headers, revision=revision
        ).dry()

    async def result(
        self,
        idempotency_key: str,
        *,
        town_id: str | None = None,
        revision: Literal[0, 1] | int | None = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Return the result of the handoff that a town accepted with a key.

        Without ``town_id`` it is the last town that accepted the key.
        """
        body = {"idempotencyKey": idempotency_key, "townId": town_id}
        headers = {} if revision is None else {"Execution-Result-Revision": str(revision)}
        found = await self.request("result.get", present(body), timeout=timeout, headers=headers)
        return Outcome(sending.verified(found.get("result"), revision), found.get("runId", ""))

    # Runs, events and commits.

    async def run(self, run_id: str, *, timeout: float | None = None) -> Run:
        """Return the state of a run."""
        return cast(Run, await self.request("run.get", {"runId": run_id}, timeout=timeout))

    def runs(
        self,
        *,
        town_id: str | None = None,
        actor_id: str | None = None,
        type: str | None = None,
        status: str | None = None,
        reason_code: str | None = None,
        id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        order: Literal["newest", "oldest"] | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Run, None]:
        """Iterate over the runs that pass the filters of run.list, the newest first.

        ``since`` and ``until`` are its ``from`` and ``to``.
        """
        query = {
            "townId": town_id, "actorId": actor_id, "type": type, "status": status,
            "reasonCode": reason_code, "id": id, "from": since, "to": until, "order": order,
            "limit": limit,
        }  # fmt: skip
        return self._rows("run.list", "runs", query, timeout)

    async def run_events(
        self,
        run_id: str,
        *,
        after_seq: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Iterate over the events that a run has by now, after ``after_seq``."""
        last = after_seq
        while True:
            body = {"runId": run_id, "afterSeq": last, "limit": limit}
            page = await self.request("run.events", present(body), timeout=timeout)
            end = page["lastEventSeq"]
            if not page["events"] and last < end:
                raise UnavailableError(
                    "INVALID_ANSWER", f"the events of run {run_id} break off at {last} of {end}"
                )
            for event in page["events"]:
                yield event
                last = event["runSeq"]
            if last >= end:
                return

    def commits(
        self,
        *,
        after: str | None = None,
        town_id: str | None = None,
        limit: int | None = None,
        on_lost: OnLost | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Commit, None]:
        """Follow the commits of the world's log, each once and in order, through lost connections.

        They are those of a town, or of all towns that the user may read. It begins after the
        cursor ``after`` ("0" for the oldest commit), or with the next commit. A reader keeps the
        ``cursor`` of its last commit, and continues with it after a restart. ``limit`` bounds a
        page.

        It ends by ``break``, by cancellation and by ``close``. While no server answers, or it
        answers 429 or 503, it asks again. If the server closes the connection for good, as for a
        removed user, it raises an UnavailableError with the code CONNECTION.

        ``on_lost`` is called with a Loss if commits may be missing, and following continues. The
        reasons are GAP (the log no longer keeps some, perhaps of other towns), DAMAGED (an
        unreadable one, which is yielded without events) and INVALID_CURSOR (the log has lost its
        end, or was replaced by an older one). If the log does not have ``after`` at the beginning,
        it raises a ReplyError with the code INVALID_CURSOR.
        """
        return follow.commits(
            self, on_lost, after=after, town_id=town_id, limit=limit, timeout=timeout
        )

    def events(
        self,
        *,
        run_id: str | None = None,
        after_seq: int = 0,
        town_id: str | None = None,
        since: datetime | str | None = None,
        after: str | None = None,
        limit: int | None = None,
        on_lost: OnLost | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Follow run events as ``commits`` follows commits: each once, those of a run in order.

        With ``run_id`` they are the events of one run after ``after_seq``, and it ends with the
        run. Otherwise they are the events of a town, or of all towns: persisted at the time
        ``since`` or later, or after the cursor ``after``, or the next ones.
        """
        if run_id is not None:
            return follow.run_events(self, run_id, after_seq, town_id, timeout)
        return follow.events(
            self, since, on_lost, after=after, town_id=town_id, limit=limit, timeout=timeout
        )

    async def changes(
        self,
        *,
        after: int | str | None = None,
        town_id: str | None = None,
        limit: int | None = None,
        on_lost: OnLost | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Commit, None]:
        """Follow the changes of towns without a run, such as by ``put_town``.

        It begins after the revision ``after``, or with the next change.
        """
        cursor = None if after is None else str(after)
        found = self.commits(
            after=cursor, town_id=town_id, limit=limit, on_lost=on_lost, timeout=timeout
        )
        async for commit in found:
            if commit.get("revision") and commit.get("events") == []:
                yield commit

    # What people decide and operators look after.

    def approvals(
        self,
        *,
        town_id: str | None = None,
        closed: bool | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Approval, None]:
        """Iterate over the proposals that wait for a person's decision or for their handoff.

        They are of a town or of all, the oldest first. With ``closed`` it iterates over those that
        wait no longer, the newest first. Operators, approvers and observers may call it.
        """
        query = {"townId": town_id, "closed": closed, "limit": limit}
        return self._rows("approval.list", "approvals", query, timeout)

    async def decide(
        self,
        handoff_id: str,
        decision: Literal["approve", "reject"],
        *,
        town_id: str,
        reason: str,
        handoff_hash: str | None = None,
        actor_id: str | None = None,
        submit: bool | None = None,
        timeout: float | None = None,
    ) -> Decided:
        """Approve or reject a proposal that waits in a town.

        ``town_id`` and ``handoff_hash`` are of the Approval that was shown. With ``submit`` the
        server executes an approved handoff at once. ``actor_id`` is the person if NATS does not
        name the user. The second of two decisions gets a ReplyError with the code ALREADY_DECIDED.
        If no answer came, the caller may repeat the decision: the same decision by the same person
        gets the same answer. Operators and approvers may call it.
        """
        body = {
            "handoffId": handoff_id,
            "townId": town_id,
            "handoffHash": handoff_hash,
            "decision": decision,
            "reason": reason,
            "actorId": actor_id,
            "submit": submit,
        }
        decided = cast(
            Decided, await self.request("approval.decide", present(body), timeout=timeout)
        )
        if "result" in decided:
            sending.verified(decided["result"])
        return decided

    def alerts(
        self,
        *,
        unacknowledged: bool | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Alert, None]:
        """Iterate over the alerts that are kept, the newest first.

        With ``unacknowledged`` only over those that are not acknowledged. Operators and observers
        may call it.
        """
        query = {"unacknowledged": unacknowledged, "limit": limit}
        return self._rows("alert.list", "alerts", query, timeout)

    async def acknowledge_alert(
        self,
        seq: int,
        *,
        actor_id: str | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> Alert:
        """Acknowledge the alert with a seq. It returns the alert with its first acknowledgement.

        ``actor_id`` is the operator if the server has no access control. Operators may call it.
        """
        body = {"seq": seq, "actorId": actor_id, "reason": reason}
        return cast(Alert, await self.request("alert.ack", present(body), timeout=timeout))

    async def pause(
        self,
        town_id: str | None = None,
        *,
        reason: str,
        actor_id: str | None = None,
        timeout: float | None = None,
    ) -> Control:
        """Pause a town, or the world: handoffs wait. Operators may call it."""
        body = {"townId": town_id, "actorId": actor_id, "reason": reason}
        return cast(Control, await self.request("control.pause", present(body), timeout=timeout))

    async def resume(
        self,
        town_id: str | None = None,
        *,
        reason: str,
        actor_id: str | None = None,
        timeout: float | None = None,
    ) -> Control:
        """Resume a paused town, or the world. Operators may call it."""
        body = {"townId": town_id, "actorId": actor_id, "reason": reason}
        return cast(Control, await self.request("control.resume", present(body), timeout=timeout))

    async def whoami(self, *, timeout: float | None = None) -> Whoami:
        """Return the user and its rights."""
        return cast(Whoami, await self.request("whoami", timeout=timeout))
