"""Sending handoffs, and reading their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from .canonical import decode, encode
from .contract import WAIT_REASONS
from .errors import UnavailableError, WorldEngineError
from .follow import PACE, Log, is_away, pause, within
from .result import is_revision_1, verify_result
from .types import Handoff, Result

if TYPE_CHECKING:
    from .client import Client

# The longest wait for a decision before the handoff is sent again, in seconds.
APPROVAL_PAUSE = 60.0
# How long a look for an absent game may take, in seconds.
_LOOK = 2.0

OnPaused = Callable[[UnavailableError], object]
OnApproval = Callable[[Result], object]
AnyHandoff = Union[Handoff, Mapping[str, Any], bytes, str]  # noqa: UP007 (Python 3.10)


class Outcome(NamedTuple):
    """The outcome of a handoff."""

    result: Result
    """The verified execution-result.v1."""
    run_id: str
    """The run of the result."""
    duplicate: Result | None = None
    """The answer to the last attempt of the call, if an earlier attempt was accepted and its answer
    was lost or was a 503; ``result`` is the one of the earlier attempt then."""

    @property
    def status(self) -> str:
        """The status of the result."""
        return self.result["status"]

    @property
    def reason_code(self) -> str:
        """The reasonCode of the result."""
        return self.result["reasonCode"]


class DryRun(NamedTuple):
    """The result that a handoff would get."""

    result: Result
    apply: str | None = None
    """plugin or rcon if a game would apply the command; then the rules predict the result."""


class Sending:
    """One handoff, as bytes that do not change, on its way."""

    def __init__(
        self,
        client: Client,
        handoff: AnyHandoff,
        *,
        timeout: float | None,
        headers: Mapping[str, str] | None,
        revision: int | None,
        on_paused: OnPaused | None = None,
    ) -> None:
        self._client, self._timeout = client, timeout
        self._headers, self._revision, self._on_paused = headers, revision, on_paused
        if isinstance(handoff, str):
            handoff = handoff.encode()
        self._payload = bytes(handoff) if isinstance(handoff, (bytes, bytearray)) else None
        # The server checks a handoff; here only the members count that the client uses.
        self._handoff = _members(handoff if self._payload is None else self._payload)
        if self._payload is None:
            self._payload = encode(handoff)
        proposal = self._handoff.get("proposal")
        town_id = proposal.get("townId") if isinstance(proposal, Mapping) else None
        self._town_id = town_id if isinstance(town_id, str) else None

    async def once(self, again: bool = False) -> Outcome:
        """Send it until it is answered. ``again``: an earlier call has sent it."""
        msg, doubt = await self._client.ask(
            "handoff",
            self._payload or b"",
            timeout=self._timeout,
            headers=self._headers,
            revision=self._revision,
            look=self._absent if self._town_id is not None else None,
            refused=self._report if self._on_paused else None,
        )
        result = verified(_json(msg.data), self._revision, self._handoff)
        outcome = Outcome(result, (msg.headers or {}).get("Run-Id", ""))
        if not (doubt or again) or result["status"] != "duplicate":
            return outcome
        first = await self._first_outcome(result)
        return first._replace(duplicate=result) if first else outcome

    async def dry(self) -> DryRun:
        """Ask for the result that it would get."""
        msg, _ = await self._client.ask(
            "handoff",
            self._payload or b"",
            timeout=self._timeout,
            headers={**(self._headers or {}), "Dry-Run": "true"},
            revision=self._revision,
        )
        headers = msg.headers or {}
        if headers.get("Dry-Run") != "true":
            raise UnavailableError(
                "INVALID_ANSWER",
                "this server does not know dry runs: it carried the handoff out as run "
                f"{headers.get('Run-Id')}",
            )
        result = verified(_json(msg.data), self._revision, self._handoff)
        return DryRun(result, headers.get("Dry-Run-Apply") or None)

    async def decided(self, seconds: float, on_approval: OnApproval | None) -> Outcome:
        """Send it, and if a person decides about it wait so long for the decision."""
        outcome = await self.once()
        if seconds <= 0 or outcome.reason_code != "APPROVAL_REQUIRED":
            return outcome
        clock = asyncio.get_running_loop().time
        until, log = clock() + seconds, Log(self._client, town_id=self._town_id)
        if on_approval:
            on_approval(outcome.result)
        with contextlib.suppress(WorldEngineError):
            # The end of the log; the decision may be before it.
            await within(until - clock(), log.page())
        first = True
        while outcome.reason_code == "APPROVAL_REQUIRED" and clock() < until:
            if not first:
                await within(until - clock(), self._decision(log))
            outcome = await within(until - clock(), self._answered()) or outcome
            waits = outcome.reason_code == "APPROVAL_REQUIRED" and clock() < until
            if waits and not first and on_approval:
                on_approval(outcome.result)
            first = False
        return outcome

    async def _answered(self) -> Outcome:
        """Send it again until the server answers."""
        while True:
            try:
                return await self.once(again=True)
            except WorldEngineError as error:
                if not is_away(error) or self._client.closed:
                    raise
                await pause(self._client, PACE.away)

    async def _decision(self, log: Log) -> None:
        """Follow the log until there is a decision about it, or for APPROVAL_PAUSE."""
        clock = asyncio.get_running_loop().time
        until = clock() + APPROVAL_PAUSE
        while (left := until - clock()) > 0:
            try:
                page = await within(left, log.page())
            except WorldEngineError:  # the user may not read the events of the town
                page = None
            if not page:
                await pause(self._client, until - clock())
                return
            for commit in page.commits:
                for event in commit.get("events") or ():
                    about = (event.get("payload") or {}).get("handoffId")
                    decides = event["eventType"] == "SignalAccepted"
                    if decides and about == self._handoff.get("handoffId"):
                        return

    async def _first_outcome(self, duplicate: Result) -> Outcome | None:
        """Return the outcome that a duplicate names, if it is of the same handoff."""
        try:
            first = await self._client.result(
                str(self._handoff.get("idempotencyKey")),
                town_id=self._town_id,
                revision=self._revision,
                timeout=self._timeout,
            )
        except WorldEngineError:
            return None  # the duplicate answers the call too
        named = duplicate["evaluation"]["duplicateCheck"]["duplicateOf"]
        same = first.result["handoffId"] == self._handoff.get("handoffId")
        return first if same and first.result["resultId"] == named else None

    async def _absent(self) -> UnavailableError | None:
        """Return an error if it waits for an absent game; None if not, or nobody answers."""
        try:
            town = await self._client.town(self._town_id or "", timeout=_LOOK)
        except WorldEngineError:
            return None
        run, since = town.get("pendingRunId"), town.get("pluginAbsentSince")
        if not run or not since:
            return None
        return UnavailableError(
            "PLUGIN_ABSENT",
            f"the town {self._town_id!r} has had no plugin since {since}, and the handoff is the "
            f"command of run {run} or waits behind it; sent again it gets its result",
        )

    def _report(self, why: WorldEngineError) -> None:
        if self._on_paused and why.code in WAIT_REASONS:
            self._on_paused(UnavailableError(why.code, str(why)))


def verified(
    result: Any, revision: int | None = None, handoff: Mapping[str, Any] | None = None
) -> Result:
    """Return a result that is what it says, or raise INVALID_ANSWER."""
    wrong = verify_result(result, handoff)
    if wrong is None and revision is not None and is_revision_1(result) != (revision == 1):
        wrong = f"it is not of revision {revision}"
    if wrong is not None:
        raise UnavailableError("INVALID_ANSWER", f"the answer is not a valid result: {wrong}")
    checked: Result = result
    return checked


def _members(handoff: Any) -> Mapping[str, Any]:
    """Return the members of a handoff; none of what is no object, which the server refuses."""
    if isinstance(handoff, bytes):
        try:
            handoff = decode(handoff)
        except ValueError:
            return {}
    return dict(handoff) if isinstance(handoff, Mapping) else {}


def _json(data: bytes) -> Any:
    try:
        return decode(data)
    except ValueError as error:
        raise UnavailableError("INVALID_ANSWER", "the answer is no JSON") from error
