"""The errors of the client."""

from __future__ import annotations

from typing import TypedDict

__all__ = [
    "ReplyError",
    "UnavailableError",
    "Violation",
    "WorldEngineError",
]


class Violation(TypedDict):
    """A place in the request, a JSON Pointer, and its defect."""

    path: str
    message: str


class WorldEngineError(Exception):
    """The base of the client's errors.

    ``code`` is for machines, ``str(error)`` for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def message(self) -> str:
        """The sentence for people."""
        return str(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}: {self})"


class ReplyError(WorldEngineError):
    """An error reply: the server refuses the request (``status`` 4xx), or has a problem (5xx).

    The page docs/contracts.md lists the codes, and ``worldengine.contract.ERRORS`` has them.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: list[Violation] | None = None,
        retry_after: float = 0.0,
        run_id: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.status = status
        """The header Nats-Service-Error-Code, such as 404."""
        self.details: list[Violation] = details or []
        """The defects of the request."""
        self.retry_after = retry_after
        """The pause before a repetition, in seconds; 0 if a repetition is useless."""
        self.run_id = run_id
        """The run of the reply, such as the run of a handoff that is being applied."""

    def __reduce__(self) -> tuple[object, ...]:
        args = (self.status, self.code, str(self), self.details, self.retry_after, self.run_id)
        return type(self), args


class UnavailableError(WorldEngineError):
    """No answer came in time, or an invalid one. The request may have been carried out.

    A handoff may be sent again without a change, since the server accepts its key at most once.

    ``code`` is TIMEOUT, NO_RESPONDERS, PERMISSION_DENIED or CONNECTION; FORKED in a child process
    of the one that connected; TOWN_PAUSED or WORLD_PAUSED if a handoff waits for the end of a
    pause, PLUGIN_ABSENT if it waits for an absent game; INVALID_ANSWER if the answer is invalid.
    The cause, if there is one, is ``__cause__``.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, str(self))
