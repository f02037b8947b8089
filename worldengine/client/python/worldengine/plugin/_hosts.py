"""Who hosts a town: plugins ask each other before they serve it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ..canonical import encode
from ..client import Client
from ..errors import UnavailableError
from ..subjects import town_token, verb_subject
from ._answers import safe_text

# The time for the answer of another plugin, in seconds.
_WAIT = 1.0


class AlreadyHosted(Exception):
    """Another plugin hosts a town. End it first, or start again after a random pause."""


class Hosts:
    """Asks and answers for the towns of a plugin; for all towns without any."""

    def __init__(self, client: Client, towns: Sequence[str], name: str) -> None:
        self._client, self._towns, self._name = client, towns, name
        self._asker = secrets.token_hex(8)

    async def answer(self) -> list[Subscription]:
        """Answer the question from now on."""
        # A plugin of all towns, which would get the commands of these too, asks =all.
        tokens = [*(town_token(town) for town in self._towns), "=all"] if self._towns else ["*"]
        body = encode({"name": self._name})

        async def reply(msg: Msg) -> None:
            if msg.reply and (msg.headers or {}).get("Asker") != self._asker:
                await self._client.nc.publish(msg.reply, body)

        nc = self._client.nc
        return [await nc.subscribe(self._subject(token), cb=reply) for token in tokens]

    async def require_alone(self) -> None:
        """Raise AlreadyHosted if another plugin answers."""
        towns: list[str | None] = [*self._towns] or [None]  # None is all towns
        found = await asyncio.gather(*(self._other(town) for town in towns))
        for town, other in zip(towns, found, strict=True):
            if other is not None:
                hosted = "towns of the world" if town is None else repr(town)
                raise AlreadyHosted(f"another plugin hosts {hosted}: end it first; it is {other}")

    async def _other(self, town: str | None) -> str | None:
        """Return the name of another plugin that hosts a town, if there is one."""
        token = "=all" if town is None else town_token(town)
        try:
            msg, _ = await self._client.ask(
                f"hosts.{token}", b"", timeout=_WAIT, headers={"Asker": self._asker}
            )
        except UnavailableError as error:
            if error.code in ("TIMEOUT", "NO_RESPONDERS"):
                return None
            raise
        return safe_text(msg.data.decode(errors="replace"))

    def _subject(self, token: str) -> str:
        return verb_subject(self._client.world, f"hosts.{token}")
