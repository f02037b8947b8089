import assert from "node:assert/strict";
import { test } from "node:test";
import { EventList } from "../src/eventlist.js";

/** A run on a server; each answer waits until the test lets it go, as it was when it was asked for. */
class Server {
  events = [];
  held = [];
  hold = false;

  ask = async (verb, { afterSeq = 0, limit }) => {
    assert.equal(verb, "run.events");
    const page = {
      events: this.events.filter((e) => e.runSeq > afterSeq).slice(0, limit), lastEventSeq: this.events.at(-1)?.runSeq ?? 0,
    };
    if (this.hold) await new Promise((resolve) => this.held.push(resolve));
    return page;
  };

  emit(runSeq) {
    const event = { runSeq };
    this.events.push(event);
    return event;
  }
}

const of = (list) => list.events.map((e) => e.runSeq);
const turn = () => new Promise((resolve) => setImmediate(resolve));

test("an event that comes while the list is asked for is not lost", async () => {
  const server = new Server();
  const list = new EventList("r", server.ask);
  [1, 2].forEach((n) => server.emit(n));
  await list.catchUp();
  server.emit(3);
  server.hold = true;
  const catching = list.catchUp(); // its answer is made now, and comes late
  const last = server.emit(5); // 4 is lost on its way
  server.events.splice(-1, 0, { runSeq: 4 });
  await list.add([last]);
  server.hold = false;
  while (server.held.length > 0) server.held.shift()();
  await catching;
  assert.deepEqual(of(list), [1, 2, 3, 4, 5]);
});

test("an event that comes before the first answer is not lost", async () => {
  const server = new Server();
  server.emit(1);
  server.hold = true;
  const list = new EventList("r", server.ask);
  const catching = list.catchUp();
  await list.add([server.emit(2)]);
  server.hold = false;
  await turn();
  server.held.shift()();
  await catching;
  assert.deepEqual(of(list), [1, 2]);
  assert.equal(list.loading, false);
});

test("numbers that a run leaves out are no gap", async () => {
  const server = new Server();
  [1, 2, 7].forEach((n) => server.emit(n));
  const list = new EventList("r", server.ask);
  await list.catchUp();
  await list.add([server.emit(9)]);
  assert.deepEqual(of(list), [1, 2, 7, 9]);
});

test("of a long run the last events are kept, and older ones come on demand", async () => {
  const server = new Server();
  for (let n = 1; n <= 5000; n++) server.emit(n);
  const list = new EventList("r", server.ask);
  await list.catchUp();
  assert.deepEqual([list.events[0].runSeq, list.last], [4901, 5000]);
  await list.older();
  assert.deepEqual([list.events[0].runSeq, list.events.length], [4801, 200]);
  for (let n = 5001; n <= 9000; n++) await list.add([server.emit(n)]);
  assert.deepEqual([list.events[0].runSeq, list.events.length], [7001, 2000]);
});

test("what went wrong is said, and can be tried again", async () => {
  const server = new Server();
  server.emit(1);
  let fails = true;
  const list = new EventList("r", async (...args) => {
    if (fails) throw new Error("away");
    return server.ask(...args);
  });
  await list.catchUp();
  assert.equal(list.error.message, "away");
  fails = false;
  await list.catchUp();
  assert.deepEqual([list.error, of(list)], [null, [1]]);
});
