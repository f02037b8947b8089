"""A client of the world engine, for agents, plugins and testers.

::

    async with worldengine.connect() as engine:
        town = await engine.town("town-threatened")

``worldengine.sync`` is the same without asyncio, ``worldengine.plugin`` answers commands in a game,
``worldengine.testing`` is for pytest. ``worldengine.types`` and ``worldengine.contract`` are made
from the server's own schemas and tables.
"""

from .canonical import canonical_json, hash_json, sha256
from .client import Client, connect
from .connection import environment
from .emit import Emitter, InvalidTransitionError
from .errors import ReplyError, UnavailableError, Violation, WorldEngineError
from .follow import Loss
from .handoff import make_handoff
from .result import derive_result_id, is_revision_1, verify_result
from .sending import DryRun, Outcome
from .subjects import town_token, verb_subject

__all__ = [
    "Client",
    "DryRun",
    "Emitter",
    "InvalidTransitionError",
    "Loss",
    "Outcome",
    "ReplyError",
    "UnavailableError",
    "Violation",
    "WorldEngineError",
    "canonical_json",
    "connect",
    "derive_result_id",
    "environment",
    "hash_json",
    "is_revision_1",
    "make_handoff",
    "sha256",
    "town_token",
    "verb_subject",
    "verify_result",
]
