"""The client against a server, and against worlds whose answers a test gives."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import Any

import pytest
from conftest import FRONTIER, TOWN, Join, body, error, fake, talk, until

import worldengine
from worldengine import ReplyError, UnavailableError, make_handoff, verify_result
from worldengine.canonical import encode
from worldengine.client import Client
from worldengine.testing import World


async def test_agent_looks_proposes_sends_and_reads(engine: Client) -> None:
    town = await engine.town(TOWN)
    handoff = await talk(engine)
    would = await engine.dry_run(handoff)
    outcome = await engine.send(handoff)
    assert would == (outcome.result, None)
    assert (outcome.status, outcome.reason_code) == ("executed", "EXECUTED")
    assert outcome.duplicate is None
    assert verify_result(outcome.result, handoff) is None
    assert outcome.result["worldState"]["postExecutionDecisionEpoch"] == town["decisionEpoch"] + 1

    found = await engine.result(handoff["idempotencyKey"], town_id=TOWN)
    assert found == outcome
    assert (await engine.run(outcome.run_id))["status"] == "COMPLETED"
    events = [e["runSeq"] async for e in engine.run_events(outcome.run_id, limit=3)]
    assert events == list(range(1, 11))
    again = await engine.send(handoff)
    assert again.status == "duplicate", "an answer that was not lost is not replaced"
    named = again.result["evaluation"]["duplicateCheck"]["duplicateOf"]
    assert named == outcome.result["resultId"]


async def test_handoffs_are_sent_as_dict_bytes_and_text(engine: Client) -> None:
    handoff = await talk(engine, "In three forms.")
    first = await engine.send(encode(handoff))
    assert first.status == "executed"
    for form in (handoff, encode(handoff).decode()):
        assert (await engine.send(form)).status == "duplicate"
    with pytest.raises(ReplyError) as caught:
        await engine.send(b"{")
    assert (caught.value.status, caught.value.code) == (400, "INVALID_JSON")
    with pytest.raises(ReplyError) as caught:
        await engine.send({**handoff, "command": "mission accept x y"})
    assert caught.value.code == "SCHEMA_VALIDATION_FAILED"
    assert caught.value.details[0]["path"] == "/command"


async def test_lists_go_through_all_pages(engine: Client) -> None:
    names = [town["townId"] async for town in engine.towns(limit=1)]
    assert names == [town["townId"] async for town in engine.towns()]
    assert len(names) == 3
    worlds = [(world["world"], world["state"]) async for world in engine.worlds(limit=1)]
    assert worlds == [("main", "served")]
    outcome = await engine.send(await talk(engine, "For a list."))
    runs = [run["runId"] async for run in engine.runs(town_id=TOWN, limit=1)]
    assert runs[0] == outcome.run_id
    assert [a async for a in engine.alerts()] == []
    history = [r["revision"] async for r in engine.town_history(TOWN, limit=1)]
    assert history == sorted(history, reverse=True)
    assert (await engine.memory(TOWN))["recentChronicle"][0]["townId"] == TOWN
    assert (await engine.memory())["scope"]["townId"] is None


async def test_towns_are_put_patched_and_removed(engine: Client) -> None:
    snapshot = {**(await engine.town(TOWN))["snapshot"], "townId": "Neu Köln", "day": 0}
    put = await engine.put_town(snapshot)
    with pytest.raises(ReplyError) as caught:
        await engine.put_town(snapshot)
    assert (caught.value.status, caught.value.code) == (409, "TOWN_EXISTS")
    patched = await engine.patch_town(
        "Neu Köln", {"pressure": {"hope": 0.75}}, expected_snapshot_hash=put["snapshotHash"]
    )
    assert (await engine.town("Neu Köln"))["snapshotHash"] == patched["snapshotHash"]
    assert (await engine.remove_town("Neu Köln"))["snapshotHash"] == patched["snapshotHash"]
    with pytest.raises(ReplyError) as caught:
        await engine.town("Neu Köln")
    assert (caught.value.status, caught.value.code) == (404, "UNKNOWN_TOWN")


@pytest.mark.parametrize("revision", [0, 1])
async def test_result_has_the_asked_revision(engine: Client, revision: Any) -> None:
    handoff = await talk(engine, f"Revision {revision}.")
    outcome = await engine.send(handoff, revision=revision)
    assert worldengine.is_revision_1(outcome.result) == (revision == 1)
    assert verify_result(outcome.result, handoff) is None
    assert await engine.result(handoff["idempotencyKey"], revision=revision) == outcome


async def test_server_of_another_revision_is_noticed(
    frontier: World, engine: Client, join: Join
) -> None:
    handoff = await talk(engine, "Old.")
    result = (await engine.send(handoff, revision=0)).result
    old = await join(frontier, world="old")
    await fake(old, "handoff", lambda n, b: body(result))
    with pytest.raises(UnavailableError, match="revision 1") as caught:
        await old.send(handoff, revision=1)
    assert caught.value.code == "INVALID_ANSWER"


async def test_wrong_results_are_not_believed(frontier: World, engine: Client, join: Join) -> None:
    handoff = await talk(engine, "Honestly.")
    result = (await engine.send(handoff)).result
    other = await talk(engine, "Another one.")
    liar = await join(frontier, world="liar")
    wrong: list[Any] = [
        {**result, "reasonCode": "BECAUSE"},
        {**result, "accepted": False},
        {**result, "status": "done"},
        {**result, "evaluation": {}},
        {},
        None,
        [],
        "executed",
    ]
    await fake(
        liar, "handoff", lambda n, b: body(wrong[n - 1]) if n <= len(wrong) else body(result)
    )
    for _ in wrong:
        with pytest.raises(UnavailableError) as caught:
            await liar.send(handoff)
        assert caught.value.code == "INVALID_ANSWER"
    with pytest.raises(UnavailableError, match="handoffId") as caught:
        await liar.send(other)
    assert (await liar.send(handoff)).result == result


async def test_trace_goes_along(frontier: World, engine: Client, join: Join) -> None:
    traced = await join(frontier, world="traced")
    subscription = await traced.nc.subscribe("worldengine.v1.traced.handoff")
    await traced.nc.flush()
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sending = asyncio.create_task(
        traced.send(await talk(engine), headers={"traceparent": parent}, timeout=5)
    )
    msg = await subscription.next_msg(timeout=60)
    assert (msg.headers or {})["traceparent"] == parent
    sending.cancel()


# Asking again.


async def test_429_and_503_are_asked_again_but_not_a_change(frontier: World, join: Join) -> None:
    busy = await join(frontier, world="busy")
    answers = {1: error(429, "OVERLOADED", 1), 2: error(503, "CONTENDED", 1)}
    asked = await fake(busy, "town.get", lambda n, b: answers.get(n) or body({"townId": "x"}))
    put = await fake(busy, "town.put", lambda n, b: error(503, "LOG_UNAVAILABLE", 1))
    listed = await fake(busy, "town.list", lambda n, b: error(429, "OVERLOADED", 60_000))
    assert (await busy.town("x"))["townId"] == "x"
    assert len(asked) == 3
    with pytest.raises(ReplyError) as caught:
        await busy.request("town.put")
    assert (caught.value.code, len(put)) == ("LOG_UNAVAILABLE", 1)
    with pytest.raises(ReplyError) as caught:
        await busy.request("town.list")
    assert (caught.value.code, len(listed)) == ("OVERLOADED", 1), (
        "its pause is longer than the call"
    )


async def test_change_without_answer_is_not_sent_again(frontier: World, join: Join) -> None:
    once = await join(frontier, world="once")
    verbs = sorted(v for v in worldengine.contract.CHANGING if not v.startswith("worlds."))
    asked = [await fake(once, verb, lambda n, b: None) for verb in verbs]
    calls = [once.request(verb, timeout=0.2) for verb in verbs]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(e, "code", e) for e in errors] == ["TIMEOUT"] * len(verbs)
    assert all("may have been carried out" in str(e) for e in errors)
    assert [len(bodies) for bodies in asked] == [1] * len(verbs)


async def test_lost_answer_is_asked_for_again(frontier: World, engine: Client, join: Join) -> None:
    lossy = await join(frontier, world="lossy")

    async def handed(n: int, sent: Any) -> Any:
        outcome = await engine.send(sent)
        return None if n == 1 else body(outcome.result, outcome.run_id)

    async def found(n: int, asked: Any) -> Any:
        return body(await engine.request("result.get", asked))

    sent = await fake(lossy, "handoff", handed)
    await fake(lossy, "result.get", found)
    outcome = await lossy.send(await talk(engine, "Can you hear me?"))
    assert (outcome.status, len(sent)) == ("executed", 2)
    assert sent[0] == sent[1]
    assert outcome.duplicate
    assert outcome.duplicate["status"] == "duplicate"


async def test_duplicate_behind_a_503_is_the_first_result(
    frontier: World, engine: Client, join: Join
) -> None:
    waiting = await join(frontier, world="waiting")

    async def handed(n: int, sent: Any) -> Any:
        outcome = await engine.send(sent)
        return error(503, "TOWN_PAUSED", 1) if n == 1 else body(outcome.result, outcome.run_id)

    async def found(n: int, asked: Any) -> Any:
        return body(await engine.request("result.get", asked))

    await fake(waiting, "handoff", handed)
    await fake(waiting, "result.get", found)
    why: list[str] = []
    outcome = await waiting.send(
        await talk(engine, "After the pause."), on_paused=lambda e: why.append(e.code)
    )
    assert outcome.status == "executed"
    assert outcome.duplicate
    assert why == ["TOWN_PAUSED"]


@pytest.mark.parametrize("code", ["PLUGIN_ABSENT", "TOWN_PAUSED", "WORLD_PAUSED"])
async def test_pause_beyond_the_end_of_a_call_is_reported(
    frontier: World, engine: Client, join: Join, code: str
) -> None:
    paused = await join(frontier, world=f"long-{code}", timeout=20)
    await fake(paused, "handoff", lambda n, b: error(503, code, 60_000))
    why: list[str] = []
    with pytest.raises(ReplyError):
        await paused.send(await talk(engine), on_paused=lambda e: why.append(e.code))
    assert why == [code]


@pytest.mark.parametrize("code", ["PLUGIN_ABSENT", "TOWN_PAUSED", "WORLD_PAUSED"])
async def test_reason_of_a_wait_outlives_silence(
    frontier: World, engine: Client, join: Join, code: str
) -> None:
    handoff = await talk(engine, "It waits for long.")
    waiting = await join(frontier, world=code, timeout=3)
    await fake(waiting, "handoff", lambda n, b: error(503, code, 10) if n == 1 else None)
    with pytest.raises(ReplyError) as caught:
        await waiting.send(handoff)
    assert caught.value.code == code


async def test_absent_game_is_reported_and_the_wait_goes_on(
    frontier: World, engine: Client, join: Join
) -> None:
    first = await engine.send(handoff := await talk(engine, "Who is there?"))
    away = await join(frontier, world="away", timeout=20)
    since = {"pendingRunId": "r", "pluginAbsentSince": "2026-01-01T00:00:00Z"}
    await fake(away, "town.get", lambda n, b: body(since if n == 1 else {}))
    sent = await fake(away, "handoff", lambda n, b: None if n == 1 else body(first.result))
    why: list[str] = []
    outcome = await away.send(handoff, on_paused=lambda e: why.append(e.code))
    assert (outcome.result, len(sent), why) == (first.result, 2, ["PLUGIN_ABSENT"])


async def test_nobody_answers(frontier: World, join: Join) -> None:
    nobody = await join(frontier, world="nobody")
    with pytest.raises(UnavailableError) as caught:
        await nobody.town("x")
    assert caught.value.code == "NO_RESPONDERS"
    asked = await fake(nobody, "town.list", lambda n, b: body({"towns": []}))
    assert [t async for t in nobody.towns()] == []
    with pytest.raises(UnavailableError) as caught:  # it was there: it may come back
        await nobody.town("x", timeout=0.6)
    assert (caught.value.code, len(asked)) == ("NO_RESPONDERS", 1)


async def test_what_cannot_be_sent_is_a_value_error(engine: Client) -> None:
    wrong: list[tuple[str, Any, Any, str]] = [
        ("town get", {}, {}, "a verb is"),
        ("town.", {}, {}, "a verb is"),
        ("town.*", {}, {}, "a verb is"),
        ("town.list", {}, {"a header": "x"}, "a header is"),
        ("town.list", {}, {"x": "a\r\nb"}, "a header is"),
        ("event.list", {"waitMs": "5"}, {}, "waitMs"),
        ("town.list", {"after": {1}}, {}, "set is not JSON"),
    ]
    for verb, asked, headers, why in wrong:
        with pytest.raises(ValueError, match=why):
            await engine.request(verb, asked, headers=headers)
    assert engine.connection._waiters == {}
    assert await engine.town(TOWN)


async def test_large_request_is_not_sent(engine: Client) -> None:
    with pytest.raises(ReplyError) as caught:
        await engine.request("town.put", {"snapshot": "x" * 2_000_000})
    assert (caught.value.status, caught.value.code) == (413, "PAYLOAD_TOO_LARGE")


# Pauses and people.


async def test_paused_town_is_reported(engine: Client) -> None:
    handoff = await talk(engine, "During a festival.", town_id="town-quiet")
    await engine.pause("town-quiet", reason="a festival", actor_id="ada")
    with pytest.raises(ReplyError, match="ada") as caught:
        await engine.send(handoff, timeout=6)  # the server answers after 2
    assert (caught.value.code, caught.value.status) == ("TOWN_PAUSED", 503)
    resumed: list[asyncio.Task[Any]] = []

    def resume(why: UnavailableError) -> None:
        if not resumed:
            again = engine.resume("town-quiet", reason="it is over", actor_id="ada")
            resumed.append(asyncio.create_task(again))

    outcome = await engine.send(handoff, on_paused=resume)
    assert outcome.status in ("executed", "duplicate")
    await resumed[0]


@pytest.mark.handoffd("--require-approval", "TOWNSFOLK_TALK", world_file=FRONTIER)
async def test_people_decide(world: World) -> None:
    async with world.connect() as engine:
        handoffs = [await talk(engine, actor_id=f"mayor-{i}") for i in range(3)]
        for handoff in handoffs:
            assert (await engine.send(handoff)).reason_code == "APPROVAL_REQUIRED"
        waiting = [a async for a in engine.approvals(limit=2)]
        assert [a["handoffId"] for a in waiting] == [h["handoffId"] for h in handoffs]
        one = handoffs[0]["handoffId"]
        denied = await engine.decide(one, "reject", town_id=TOWN, reason="No.", actor_id="ada")
        assert (denied["decision"], denied["actorId"]) == ("reject", "ada")
        assert (await engine.send(handoffs[0])).reason_code == "APPROVAL_DENIED"
        with pytest.raises(ReplyError) as caught:
            await engine.decide(one, "approve", town_id=TOWN, reason="Now.", actor_id="ben")
        assert caught.value.code == "ALREADY_DECIDED"
        done = await engine.decide(
            handoffs[1]["handoffId"], "approve", town_id=TOWN, reason="Go.", actor_id="ada",
            submit=True,
        )  # fmt: skip
        assert done["result"]["status"] == "executed"


@pytest.mark.handoffd("--require-approval", "TOWNSFOLK_TALK", world_file=FRONTIER)
async def test_send_waits_for_a_decision(world: World) -> None:
    async with world.connect() as engine:
        deciding: list[asyncio.Task[Any]] = []
        for verdict, submit, reason in [
            ("approve", True, "EXECUTED"),
            ("approve", None, "EXECUTED"),
            ("reject", None, "APPROVAL_DENIED"),
        ]:
            handoff, asked = await talk(engine), []  # type: ignore[var-annotated]

            def decide(
                result: Any, verdict: Any = verdict, submit: Any = submit, asked: Any = asked
            ) -> None:
                assert result["reasonCode"] == "APPROVAL_REQUIRED"
                asked.append(result)
                decision = engine.decide(
                    result["handoffId"], verdict, town_id=TOWN, reason="", submit=submit
                )
                deciding.append(asyncio.create_task(decision))

            outcome = await engine.send(handoff, approval_wait=60, on_approval=decide)
            assert (outcome.reason_code, len(asked)) == (reason, 1)
            assert outcome.run_id
        await asyncio.gather(*deciding)
        late = await talk(engine, actor_id="mayor-2")
        outcome = await engine.send(late, approval_wait=0.05)
        assert outcome.reason_code == "APPROVAL_REQUIRED"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.send(late, approval_wait=60), 0.3)


# Losses.


@pytest.mark.handoffd(world_file=FRONTIER)
async def test_death_of_the_server_is_survived(world: World) -> None:
    async with world.connect(reconnect_time_wait=0.05) as engine:
        first = await engine.send(await talk(engine, "One."))
        second = await talk(engine, "Two.")
        world.kill()
        sent = asyncio.create_task(engine.send(second))
        await asyncio.sleep(0)
        await asyncio.to_thread(world.start)
        outcome = await sent
        assert outcome.status == "executed"
        third = await engine.send(await talk(engine, "Three."))
        came: dict[str, list[int]] = {}
        async for event in engine.events(town_id=TOWN, since="2020-01-01T00:00:00Z"):
            came.setdefault(event["runId"], []).append(event["runSeq"])
            if event["runId"] == third.run_id and event["eventType"] == "RunCompleted":
                break
        for run in (first, outcome, third):
            assert came[run.run_id] == list(range(1, 11)), "no gap and no double"


@pytest.mark.handoffd(world_file=FRONTIER)
async def test_nothing_is_sent_behind_a_cancelled_call(world: World) -> None:
    async with world.connect(reconnect_time_wait=0.05) as engine:
        before = await engine.town(TOWN)
        handoff = await talk(engine, "Cancelled.")
        world.kill()
        await until(lambda: not engine.nc.is_connected)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.send(handoff), 0.2)
        with pytest.raises(UnavailableError, match="it was not sent") as caught:
            await engine.patch_town(
                TOWN, {"day": 99}, expected_snapshot_hash=before["snapshotHash"], timeout=0.2
            )
        assert caught.value.code == "TIMEOUT"
        await asyncio.to_thread(world.start)
        assert (await engine.town(TOWN))["snapshotHash"] == before["snapshotHash"]
        assert (await engine.send(handoff)).status == "executed"


async def test_cancelled_calls_lose_and_double_nothing(engine: Client) -> None:
    """Whenever a call is cancelled, the same handoff sent again is executed once."""
    for i in range(20):
        handoff = await talk(engine, f"Cancelled {i}.")
        call = asyncio.create_task(engine.send(handoff))
        for _ in range(i):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled() or call.result().status == "executed"
        outcome = await engine.send(handoff)
        assert outcome.status in ("executed", "duplicate")
        found = await engine.result(handoff["idempotencyKey"], town_id=TOWN)
        assert found.status == "executed"
        assert found.result["worldState"]["postExecutionDecisionEpoch"] == (
            handoff["decisionEpoch"] + 1
        )
    assert engine.connection._waiters == {}


@pytest.mark.handoffd(world_file=FRONTIER)
async def test_frozen_server_is_waited_for(world: World) -> None:
    async with world.connect(reconnect_time_wait=0.05) as engine:
        handoff = await talk(engine, "Frozen.")
        world.signal(signal.SIGSTOP)
        with pytest.raises(UnavailableError) as caught:
            await engine.town(TOWN, timeout=0.3)
        assert caught.value.code == "TIMEOUT"
        sent = asyncio.create_task(engine.send(handoff))
        await asyncio.sleep(0.05)
        world.signal(signal.SIGCONT)
        assert (await sent).status == "executed"


async def test_calls_of_a_closed_client_end(frontier: World, join: Join) -> None:
    closing = await join(frontier, world="closing")
    await fake(closing, "town.get", lambda n, b: None)
    call = asyncio.create_task(closing.town("x"))
    follows = asyncio.create_task(_collect(closing.commits()))
    await asyncio.sleep(0.01)
    await closing.close()
    await closing.close()
    with pytest.raises(UnavailableError) as caught:
        await call
    assert caught.value.code == "CONNECTION"
    assert await follows == []
    with pytest.raises(UnavailableError, match="closed"):
        await closing.town("x")


async def _collect(items: Any) -> list[Any]:
    return [item async for item in items]


async def test_first_connection_fails_at_once() -> None:
    with pytest.raises(UnavailableError, match="start handoffd") as caught:
        await worldengine.connect("nats://user:secret@127.0.0.1:1")
    assert caught.value.code == "CONNECTION"
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="world's name"):
        worldengine.connect(world="a.b")


async def test_client_stays_in_its_loop(engine: Client) -> None:
    def other() -> None:
        asyncio.run(engine.whoami())

    with pytest.raises(RuntimeError, match="belongs to the event loop"):
        await asyncio.to_thread(other)


async def test_events_of_a_run_and_changes(engine: Client) -> None:
    changes = engine.changes()
    first: asyncio.Task[Any] = asyncio.ensure_future(anext(changes))
    outcome = await engine.send(await talk(engine, "Followed."))
    events = [e async for e in engine.events(run_id=outcome.run_id)]
    assert [e["runSeq"] for e in events] == list(range(1, 11))
    assert events[-1]["eventType"] == "RunCompleted"
    after = [e["runSeq"] async for e in engine.events(run_id=outcome.run_id, after_seq=7)]
    assert after == [8, 9, 10]
    revisions: list[int] = []
    while not first.done():  # it may not have asked for the end of the log yet
        town = await engine.town(TOWN)
        patched = await engine.patch_town(
            TOWN,
            {"latestNetherEvent": f"{len(revisions)} ghasts"},
            expected_snapshot_hash=town["snapshotHash"],
        )
        revisions.append(patched["revision"])
        await asyncio.sleep(0.05)
    assert (await first)["revision"] in revisions
    with pytest.raises(ReplyError) as caught:
        await anext(engine.commits(after="999999999"))
    assert caught.value.code == "INVALID_CURSOR"


async def test_losses_are_reported(frontier: World, join: Join) -> None:
    lost = await join(frontier, world="lost")
    event = {"cursor": "9", "at": "2026-01-01T00:00:00Z", "events": []}
    pages: list[Any] = [
        body({"commits": [], "cursor": "4"}),
        body({"commits": [{"cursor": "7", "damaged": True}], "cursor": "7", "gap": True}),
        error(400, "INVALID_CURSOR"),
        body({"commits": [], "cursor": "8"}),
        body({"commits": [event], "cursor": "9"}),
    ]
    asked = await fake(lost, "event.list", lambda n, b: pages[n - 1] if n <= 5 else None)
    losses: list[worldengine.Loss] = []
    follows = lost.commits(on_lost=losses.append)
    assert (await anext(follows))["cursor"] == "7"
    assert (await anext(follows))["cursor"] == "9"
    assert losses == [("GAP", "7"), ("DAMAGED", "7"), ("INVALID_CURSOR", "8")]
    assert [a.get("after") for a in asked] == [None, "4", "7", None, "8"]


async def test_errors_say_what_to_do(engine: Client) -> None:
    with pytest.raises(ReplyError) as caught:
        await engine.town("nowhere")
    assert re.fullmatch(r"ReplyError\(UNKNOWN_TOWN: .+\)", repr(caught.value))
    import pickle

    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.status, copied.code, str(copied)) == (404, "UNKNOWN_TOWN", str(caught.value))


async def test_since_is_a_time(engine: Client) -> None:
    wrong: list[tuple[Any, type[Exception]]] = [("42", ValueError), (42, TypeError)]
    for since, kind in wrong:
        with pytest.raises(kind, match=r"since is a time, .* not '?42'?: a cursor goes"):
            await anext(engine.events(since=since))


async def test_own_proposal_ids_and_mistakes(engine: Client) -> None:
    town = await engine.town(TOWN)
    named = "proposal_" + "0" * 64
    wish: Any = {"args": {"focus": "dread"}, "actor_id": "a", "reason": "r"}
    handoff = make_handoff(town, type="SALVAGE_PLAN", proposal_id=named, **wish)
    assert handoff["idempotencyKey"] == named
    assert handoff["command"] == f"salvage initiate {TOWN} dread"
    with pytest.raises(ValueError, match="type must be one of"):
        make_handoff(town, type="DANCE", **wish)
    with pytest.raises(ValueError, match=r"args/focus does not exist; .* have projectId"):
        make_handoff(town, type="PROJECT_ADVANCE", **wish)
    for args, message in (
        ({}, "/proposal/args/focus must be there: args must have focus"),
        ({"focus": "gold"}, "/proposal/args/focus must be one of scarcity, dread, general, "),
    ):
        with pytest.raises(ValueError, match=message):
            make_handoff(town, type="SALVAGE_PLAN", **{**wish, "args": args})
