"""Canonical JSON (RFC 8785) and the hashes of the contract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785

__all__ = ["canonical_json", "hash_json", "sha256"]


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value: no white space, members sorted by UTF-16 code units.

    A number is an IEEE double, as in every JSON library of the contract: an int beyond 2**53 is
    rounded to one. Any Mapping is an object, and any Sequence a list. A value that has no JSON
    (NaN, half of a surrogate pair, a key that is no text) raises ValueError.
    """
    return _canonical(value).decode()


def hash_json(value: Any) -> str:
    """Return the contract's hash of a value: the lower-case hex SHA-256 of its canonical JSON."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def sha256(text: str) -> str:
    """Return the lower-case hex SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return rfc8785.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Return a value in dicts and lists, with ints beyond 2**53 as the nearest double."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError("a number of the value is too large for JSON") from error
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return [_plain(item) for item in value]
    return value


def encode(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, as requests have it. It raises ValueError as above."""
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_standard
    )
    return text.encode()


def _standard(value: Any) -> Any:
    """Return a Mapping as a dict, and a Sequence as a list, for json."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise ValueError(f"a {type(value).__name__} is not JSON")


def decode(data: bytes | str) -> Any:
    """Return the value of a JSON text. It raises ValueError for what JSON does not have (NaN)."""
    return json.loads(data, parse_constant=_not_json)


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def present(body: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are given: those that are not None."""
    return {name: value for name, value in body.items() if value is not None}
