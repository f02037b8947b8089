// What became of the commands, in a file that survives the server: one JSON record a line,
// {"begin": id} before a command changes the world and {"end": id, "answer": …} before it is answered.
// A record is on the disk when the promise of its method resolves.
import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname } from "node:path";

export class Memory {
  #path;
  #limit;
  #file; // open for appending; undefined when the file must be written anew
  #lines = 0; // in the file
  #known = new Map(); // id → {answer} or {}, the oldest first
  #waiting = []; // records that are not on the disk, with their callers
  #writing = false;

  // open reads the file at path, or starts one. It remembers the last limit ids.
  static async open(path, limit) {
    const memory = new Memory();
    memory.#path = path;
    memory.#limit = limit;
    await mkdir(dirname(path), { recursive: true });
    const text = await readFile(path, "utf8").catch((err) => {
      if (err.code === "ENOENT") return "";
      throw err;
    });
    // What follows the last line's end is a record that a crash cut off: nobody relied on it yet.
    text.split("\n").slice(0, -1).forEach((line, i) => {
      try {
        memory.#learn(JSON.parse(line));
      } catch (err) {
        throw new Error(`${path}:${i + 1} is no record: ${err.message}`);
      }
    });
    await memory.#rewrite([]);
    return memory;
  }

  // get returns {answer} of a command that has ended, {} of one that was begun, or undefined.
  get(id) { return this.#known.get(id); }

  // size is how many ids are remembered, unfinished how many of them were begun and not ended.
  get size() { return this.#known.size; }
  get unfinished() { return [...this.#known.values()].filter((entry) => !entry.answer).length; }

  begin(id) { return this.#write({ begin: id }); }
  end(id, answer) { return this.#write({ end: id, answer }); }

  async close() {
    await this.#file?.close();
    this.#file = undefined;
  }

  #write(record) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ record, resolve, reject });
      if (!this.#writing) this.#flush();
    });
  }

  // flush brings what waits to the disk: whatever came while it was busy goes with one sync.
  async #flush() {
    this.#writing = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      const records = batch.map(({ record }) => record);
      try {
        if (this.#file && this.#lines < 4 * this.#limit) await this.#append(records);
        else await this.#rewrite(records);
        records.forEach((record) => this.#learn(record));
        batch.forEach(({ resolve }) => resolve());
      } catch (err) {
        // The file may end in half a record now, so the next batch starts a new one.
        await this.close().catch(() => {});
        batch.forEach(({ reject }) => reject(err));
      }
    }
    this.#writing = false;
  }

  #learn({ begin, end, answer }) {
    const id = begin ?? end;
    if (typeof id !== "string") throw new Error("it names no id");
    this.#known.delete(id); // an id that is written again is young again
    this.#known.set(id, end ? { answer } : {});
    if (this.#known.size > this.#limit) this.#known.delete(this.#known.keys().next().value);
  }

  async #append(records) {
    await this.#file.writeFile(lines(records));
    await this.#file.sync();
    this.#lines += records.length;
  }

  // rewrite replaces the file by one with what is remembered, and records, all or nothing.
  async #rewrite(records) {
    const kept = [...this.#known].map(([id, { answer }]) => (answer ? { end: id, answer } : { begin: id }));
    const next = `${this.#path}.next`;
    const file = await open(next, "w");
    try {
      await file.writeFile(lines([...kept, ...records]));
      await file.sync();
      await rename(next, this.#path);
      await syncDirectory(dirname(this.#path));
    } catch (err) {
      await file.close();
      throw err;
    }
    await this.close();
    this.#file = file;
    this.#lines = kept.length + records.length;
  }
}

const lines = (records) => records.map((record) => `${JSON.stringify(record)}\n`).join("");

async function syncDirectory(path) {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
