"""What the agents' own library printed: ids and hashes of this client are the same."""

from __future__ import annotations

import json
from collections import UserList
from types import MappingProxyType
from typing import Any

import pytest
from conftest import ROOT

from worldengine import canonical_json, hash_json, make_handoff, town_token, verify_result
from worldengine.canonical import decode, encode


def vectors(name: str) -> Any:
    return json.loads((ROOT / "testdata/vectors" / name).read_text())


def test_results_verify_and_nothing_of_them_can_be_changed() -> None:
    results = [*vectors("results.json"), *vectors("results.revision-1.json")]
    assert len(results) == 288
    for vector in results:
        name, result = vector["name"], vector["result"]
        assert verify_result(result) is None, name
        changes: list[dict[str, Any]] = [
            {"reasonCode": result["reasonCode"] + "!"},
            {"accepted": not result["accepted"]},
            {"handoffId": "handoff_"},
            {"idempotencyKey": "another"},
            {"status": "done"},
            {"schemaVersion": 2},
        ]
        if "type" in result:
            changes += [{"actorId": "another"}, {"authorityCommands": ["x"]}, {"resultId": "x"}]
        for change in changes:
            assert verify_result({**result, **change}) is not None, f"{name} {change}"
        if "handoff" in vector:
            assert verify_result(result, vector["handoff"]) is None, name
    others: tuple[Any, ...] = (None, 7, [], {}, "executed", {"schemaVersion": True})
    for no in others:
        assert verify_result(no) is not None


def test_proposal_becomes_the_handoff_that_the_library_makes_of_it() -> None:
    handoffs = vectors("handoffs.valid.json")
    assert len(handoffs) == 60
    for vector in handoffs:
        handoff = vector["handoff"]
        p = handoff["proposal"]
        made = make_handoff(
            {**handoff, "townId": p["townId"]},
            type=p["type"],
            args=p["args"],
            actor_id=p["actorId"],
            reason=p["reason"],
            priority=p["priority"],
            reason_tags=p["reasonTags"],
            preconditions=p["preconditions"],
        )
        assert made == handoff, vector["name"]


def test_canonical_json_is_that_of_the_library() -> None:
    for vector in vectors("snapshots.json"):
        value = json.loads(vector["canonicalJson"])
        assert canonical_json(value) == vector["canonicalJson"], vector["name"]
        assert hash_json(value) == vector["snapshotHash"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([-0.0, -0, 1e21, 1e-7, 5e-324], "[0,0,1e+21,1e-7,5e-324]"),
        ([333333333.33333329, 1.0, 1e-5], "[333333333.3333333,1,0.00001]"),
        ([2**53 - 1, 2**53, 10**20], "[9007199254740991,9007199254740992,100000000000000000000]"),
        ([12345678901234567890, 10**21], "[12345678901234567000,1e+21]"),
        (
            {"\ufb33": 1, "\U0001f600": 2, "e\u0301": 3, "a": "\u2028\u0007<&"},
            '{"a":"\u2028\\u0007<&","e\u0301":3,"\U0001f600":2,"\ufb33":1}',
        ),
        ((True, None, {}), "[true,null,{}]"),
    ],
)
def test_numbers_and_texts_are_written_as_javascript_does(value: Any, text: str) -> None:
    assert canonical_json(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "\ud83d", {1: 2}, {1, 2}])
def test_what_has_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        canonical_json(value)


def test_json_of_requests() -> None:
    assert encode({"a": "é\u2028"}) == '{"a":"é\u2028"}'.encode()
    for wrong in (float("nan"), "\ud83d"):
        with pytest.raises(ValueError):  # noqa: PT011
            encode(wrong)
    with pytest.raises(ValueError, match="not JSON"):
        decode(b"[NaN]")


def test_town_has_the_token_that_the_server_gives_it() -> None:
    assert town_token("town-threatened") == "town-threatened"
    assert town_token("Town 1.é") == "Town%201%2E%C3%A9"
    assert town_token("x" * 128) == "x" * 128
    assert len(town_token("x" * 129)) == 65


def test_mappings_and_sequences_are_json() -> None:
    town = MappingProxyType({"b": UserList([1, MappingProxyType({})]), "a": (2**60,)})
    assert canonical_json(town) == '{"a":[1152921504606847000],"b":[1,{}]}'
    assert decode(encode(town)) == {"a": [2**60], "b": [1, {}]}
    for no, name in ((b"x", "bytes"), ({1}, "set"), (object(), "object")):
        for write in (canonical_json, encode):
            with pytest.raises(ValueError, match=name):
                write(MappingProxyType({"a": no}))
