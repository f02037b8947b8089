"""Names on the wire."""

from __future__ import annotations

import re

from .canonical import sha256

__all__ = ["town_token", "verb_subject"]

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_WORLD = re.compile(r"[A-Za-z0-9_-]{1,64}")


def verb_subject(world: str, verb: str) -> str:
    """Return the subject of a verb's requests; verbs about worlds are asked of no world."""
    if verb.startswith("worlds."):
        return f"worldengine.v1.={verb}"
    return f"worldengine.v1.{world}.{verb}"


def town_token(town_id: str) -> str:
    """Return the token of a town id in a subject.

    It is the id's UTF-8 with every byte except A-Z a-z 0-9 _ - percent-encoded. If that has more
    than 128 bytes, it is ``=`` and the SHA-256 of the id.
    """
    token = "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in town_id.encode())
    return token if len(token) <= 128 else "=" + sha256(town_id)


def checked_world(world: str) -> str:
    """Return the name of a world, or raise ValueError."""
    if not isinstance(world, str) or not _WORLD.fullmatch(world):
        raise ValueError(f"a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not {world!r}")
    return world
