"""For authors of game-server plugins in Python: bridges, bots, servers of their own.

It implements docs/plugin-protocol.md around one function, which changes the game::

    async def apply(command):
        if command["type"] != "PROJECT_ADVANCE":
            return plugin.refused("NOT_ALLOWED", "This server does not build that.")
        await game.build(command["args"]["projectId"], command["applyId"])
        return plugin.applied()

    async with plugin.serve(apply, recover=recover, memory="plugin.memory") as served:
        await served.wait_closed()

**Once.** An applyId is applied at most once per memory. The memory durably records an id as begun
before each call of ``apply``, and its outcome afterwards; a repeated request gets that outcome. A
retryable refusal is remembered for its logical attempt only, and the next attempt calls ``apply``
again.

**Order.** Commands of one town are applied one at a time, in the order of their arrival; up to
``concurrency`` towns have their commands applied at once. A command beyond ``queue`` is answered
busy. A repeated request is answered busy while its command waits, and in-progress while it is
applied. A command whose deadline passes before its turn is not begun.

**In doubt.** A command is in doubt if it was begun and its outcome is not in the memory: ``apply``
raised, was cancelled, or the process ended. Since ``apply`` might apply it twice, ``recover`` is
called instead, which looks into the game: it returns ``applied()``, ``not_begun()`` (``apply`` is
called again), or ``refused(…)`` if nothing of the command is in the game. Without ``recover`` the
command is refused for good with OUTCOME_UNKNOWN, and an operator corrects the town with town.put.

**One process.** One plugin process hosts a town. ``serve`` asks whether another one does, and the
memory's file is locked: a second process with the same file does not start.

``apply`` and ``recover`` are coroutines, or ordinary functions, which are called in a thread. A
thread that a coroutine starts itself may outlast the coroutine's cancellation: ``recover`` must
then know of it.
"""

from ._answers import NotBegun, applied, in_progress, not_begun, refused, safe_text
from ._hosts import AlreadyHosted
from ._memory import (
    BrokenMemory,
    CorruptMemory,
    FileMemory,
    LockedMemory,
    Memory,
    MemoryFailed,
    NotAMemory,
    Record,
    VolatileMemory,
)
from ._service import Plugin, Serving, Unfinished, serve, trace

__all__ = [
    "AlreadyHosted",
    "BrokenMemory",
    "CorruptMemory",
    "FileMemory",
    "LockedMemory",
    "Memory",
    "MemoryFailed",
    "NotAMemory",
    "NotBegun",
    "Plugin",
    "Record",
    "Serving",
    "Unfinished",
    "VolatileMemory",
    "applied",
    "in_progress",
    "not_begun",
    "refused",
    "safe_text",
    "serve",
    "trace",
]
