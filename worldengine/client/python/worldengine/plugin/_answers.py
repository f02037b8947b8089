"""Commands and their answers on the wire."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, cast

from ..canonical import decode, encode
from ..contract import PROPOSALS
from ..types import Answer, Artifact, Command, Snapshot

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_STATUSES = ("applied", "refused", "busy", "in-progress")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")
# The longest timeout that counts, in milliseconds: a day.
_LONGEST = 86_400_000


class NotBegun(Exception):
    """Raised by ``apply``: nothing of the command is in the game, which cannot be reached now.

    The command is answered busy, and the engine sends it again.
    """


def applied(
    snapshot: Snapshot | Mapping[str, Any] | None = None,
    *,
    artifacts: Sequence[Artifact | Mapping[str, Any]] | None = None,
    embodiment: Mapping[str, Any] | None = None,
) -> Answer:
    """Answer that the command is done, now or before.

    ``snapshot`` is the whole town as it is after the command; without it the town is as
    ``expectedSnapshot``. ``artifacts`` refer to output that the command left elsewhere;
    ``embodiment`` goes into revision 1 of the result.
    """
    answer: dict[str, Any] = {"status": "applied"}
    given = {"snapshot": snapshot, "artifacts": artifacts, "embodiment": embodiment}
    answer.update({name: value for name, value in given.items() if value is not None})
    return cast(Answer, answer)


def refused(code: str, message: str = "", *, retryable: bool = False) -> Answer:
    """Answer that the command is not done: never, or with ``retryable`` not in this attempt.

    ``code`` is for machines, such as PROTECTED_AREA; ``message`` is the same in a sentence.
    """
    answer = {"status": "refused", "reasonCode": code, "message": message, "retryable": retryable}
    return cast(Answer, answer)


def not_begun(retry_after: float = 0.5) -> Answer:
    """Answer that nothing of the command is in the game: the engine asks again after a pause."""
    return cast(Answer, {"status": "busy", "retryAfterMs": _milliseconds(retry_after)})


def in_progress(retry_after: float = 0.5) -> Answer:
    """Answer that the command is begun, not done: then ``recover`` is called.

    ``retry_after`` is the pause, in seconds.
    """
    return cast(Answer, {"status": "in-progress", "retryAfterMs": _milliseconds(retry_after)})


def safe_text(text: str, limit: int = 256) -> str:
    """Return a text that an agent has written for a chat, sign or log: one line of plain text.

    It has no control characters, no § and no more than ``limit`` characters. It is never for a
    console or a dispatcher of commands.
    """
    plain = "".join(" " if _is_unsafe(char) else char for char in text[: 4 * limit])
    plain = " ".join(plain.split())
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _is_unsafe(char: str) -> bool:
    return char == "§" or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def read_command(data: bytes) -> Command:
    """Return the command of a request. It raises ValueError for what is no command for this kit."""
    command = decode(data)
    if not isinstance(command, dict):
        raise ValueError("it is no JSON object")
    if command.get("schemaVersion") != "command-apply.v1":
        raise ValueError("it is no command-apply.v1")
    for name in ("applyId", "townId", "actorId", "command", "deadline"):
        if not isinstance(command.get(name), str) or not command[name]:
            raise ValueError(f"{name} must be a text")
    for name in ("logicalAttemptId", "timeoutMs", "decisionEpoch"):
        number = command.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{name} must be an integer of 0 or more")
    for name in ("args", "snapshot", "expectedSnapshot"):
        if not isinstance(command.get(name), dict):
            raise ValueError(f"{name} must be an object")
    spec = PROPOSALS.get(command.get("type", ""))
    if spec is None:
        raise ValueError(f"its type {command.get('type')!r} is none of this version")
    if not isinstance(command["args"].get(spec.argument), str):
        raise ValueError(f"args must have {spec.argument}")
    moment(command["deadline"])
    return cast(Command, command)


def seconds_left(command: Command) -> float:
    """Return the time of a command from its arrival on."""
    return min(command["timeoutMs"], _LONGEST) / 1000


def moment(text: str) -> datetime:
    """Return a time of RFC 3339."""
    found = _RFC3339.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no time")
    zone = "+00:00" if found[3] in "Zz" else found[3]
    return datetime.fromisoformat(f"{found[1]}.{found[2] or '0':0<6.6}{zone}")


def now() -> datetime:
    """Return the time of this machine's clock."""
    return datetime.now(timezone.utc)


def complete(answer: Any, command: Command) -> Answer:
    """Return an answer of ``apply`` or ``recover`` for the wire. It raises ValueError."""
    if not isinstance(answer, Mapping):
        raise ValueError(
            f"apply and recover must return an answer such as applied(), not {answer!r}"
        )
    status = answer.get("status")
    if status not in _STATUSES:
        raise ValueError(f"status must be one of {', '.join(_STATUSES)}, not {status!r}")
    code = answer.get("reasonCode", "UNSPECIFIED")
    if status == "refused" and not (isinstance(code, str) and _CODE.fullmatch(code)):
        raise ValueError(f"reasonCode must be capitals, digits and _, not {code!r}")
    if not isinstance(answer.get("message", ""), str):
        raise ValueError("message must be a text")
    for name in ("snapshot", "embodiment"):
        if not isinstance(answer.get(name, {}), Mapping):
            raise ValueError(f"{name} must be an object")
    snapshot = answer.get("snapshot")
    if snapshot is not None and snapshot.get("townId") != command["townId"]:
        raise ValueError("snapshot must be the town of the command")
    whole = {
        **answer, "schemaVersion": "command-applied.v1", "applyId": command["applyId"],
    }  # fmt: skip
    if status == "refused":
        whole["reasonCode"] = code
    return cast(Answer, decode(encode(whole)))  # a copy, which has JSON


def is_definite(answer: Mapping[str, Any]) -> bool:
    """Report whether an answer says applied or refused."""
    return answer["status"] in ("applied", "refused")


def is_retryable(answer: Mapping[str, Any]) -> bool:
    """Report whether an answer is a refusal of its attempt only."""
    return answer["status"] == "refused" and bool(answer.get("retryable"))


def _milliseconds(seconds: float) -> int:
    return max(0, min(round(seconds * 1000), 3_600_000))
