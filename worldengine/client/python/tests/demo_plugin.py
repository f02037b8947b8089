"""A plugin with a game of its own, a file with a line for each change. Tests check and kill it.

    python demo_plugin.py --server URL --world W --town T --memory FILE --game FILE [--kill POINT]

It ends itself by SIGKILL at a point: before or after the begin, the change or the done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from worldengine import plugin
from worldengine.types import Answer, Command

POINTS = [f"{when}-{what}" for what in ("begin", "change", "done") for when in ("before", "after")]


class Game:
    """The game: ids of changes in a file. An unlimited change adds, so it may happen once only."""

    def __init__(self, path: Path, kill: str) -> None:
        self._path, self._kill = path, kill

    def die(self, point: str) -> None:
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def apply(self, command: Command) -> Answer:
        (argument,) = command["args"].values()
        if argument not in ("casual", "morale-boost", "wall-perimeter"):
            return plugin.refused("UNKNOWN_TARGET", "This game does not have it.")
        self.die("before-change")
        with self._path.open("a") as file:
            file.write(command["applyId"] + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.die("after-change")
        return plugin.applied()

    def recover(self, command: Command) -> Answer:
        changes = self._path.read_text().split() if self._path.exists() else []
        return plugin.applied() if command["applyId"] in changes else plugin.not_begun(0)


class DyingMemory(plugin.FileMemory):
    """A memory that ends the process before or after a write."""

    def __init__(self, path: str, game: Game) -> None:
        super().__init__(path)
        self._game = game

    def put(self, record: plugin.Record) -> None:
        what = "begin" if record.begun else "done"
        self._game.die(f"before-{what}")
        super().put(record)
        self._game.die(f"after-{what}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("server", "world", "town", "memory", "game"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--kill", default="", choices=["", *POINTS])
    args = parser.parse_args()
    game = Game(Path(args.game), args.kill)
    memory = DyingMemory(args.memory, game)
    async with plugin.serve(
        game.apply,
        recover=game.recover,
        memory=memory,
        servers=args.server,
        world=args.world,
        towns=[args.town],
        retry_after=0.05,
    ) as served:
        loop = asyncio.get_running_loop()
        closing = asyncio.ensure_future(served.wait_closed())
        loop.add_signal_handler(signal.SIGTERM, closing.cancel)
        print("serving", flush=True)
        await asyncio.wait({closing})


if __name__ == "__main__":
    asyncio.run(main())
