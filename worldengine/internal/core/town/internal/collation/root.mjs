// Writes root.json.gz, the CLDR root collation as the ICU in this Node.js has it: every mapping of
// ICU's own ucadata.icu, which a full-icu build of Node.js carries in its executable, and the
// canonical decompositions of the same Unicode version. README.md says what its members mean.
//
//   node root.mjs > root.json.gz
//
// Names in capitals and the formats are those of ICU4C's collation.h, collationdatareader.h,
// utrie2.h and ucharstrie.h.
import fs from "node:fs";
import zlib from "node:zlib";

const icu = open("/coll/ucadata.icu");
const start = icu.readUInt16LE(0); // after the header
const part = (i) => start + icu.readInt32LE(start + 4 * i);
const [IX_TRIE, IX_CES, IX_CE32S, IX_CONTEXTS] = [7, 9, 11, 13].map(part);
const ces = (i) => icu.readBigUInt64LE(IX_CES + 8 * i);
const ce32s = (i) => icu.readUInt32LE(IX_CE32S + 4 * i);
const contexts = (i) => icu.readUInt16LE(IX_CONTEXTS + 2 * i);
const contextCE32 = (i) => ((contexts(i) << 16) | contexts(i + 1)) >>> 0;
if (icu.toString("latin1", 12, 16) !== "UCol" || icu[16] !== 5) throw new Error("not UCol 5");

// An item of the ICU data in the executable: a table of contents with names and offsets.
function open(name) {
  const exe = fs.readFileSync(process.execPath);
  for (let at = exe.indexOf("CmnD"); at >= 0; at = exe.indexOf("CmnD", at + 1)) {
    const header = at - 12;
    if (exe.readUInt16LE(header + 2) !== 0x27da) continue;
    const toc = header + exe.readUInt16LE(header);
    for (let i = exe.readUInt32LE(toc); i-- > 0; ) {
      const entry = toc + 4 + 8 * i;
      const text = toc + exe.readUInt32LE(entry);
      if (exe.toString("latin1", text, exe.indexOf(0, text)).endsWith(name)) {
        return exe.subarray(toc + exe.readUInt32LE(entry + 4));
      }
    }
  }
  throw new Error(`no ${name}: this Node.js has no ICU data of its own`);
}

// UTRIE2_GET32.
if (icu.readUInt32LE(IX_TRIE) !== 0x54726932) throw new Error("not a UTrie2");
const indexLength = icu.readUInt16LE(IX_TRIE + 6);
const dataLength = icu.readUInt16LE(IX_TRIE + 8) << 2;
const highStart = icu.readUInt16LE(IX_TRIE + 14) << 11;
function trie(c) {
  const index = (i) => icu.readUInt16LE(IX_TRIE + 16 + 2 * i);
  let i;
  if (c >= highStart) i = dataLength - 4;
  else if (c > 0xffff) i = (index(index(0x820 + (c >> 11)) + ((c >> 5) & 63)) << 2) + (c & 31);
  else if (c >= 0xd800 && c < 0xdc00) i = (index(0x800 + ((c - 0xd800) >> 5)) << 2) + (c & 31);
  else i = (index(c >> 5) << 2) + (c & 31);
  return icu.readUInt32LE(IX_TRIE + 16 + 2 * indexLength + 4 * i);
}

// Every [string, value] of the UCharsTrie at pos.
function* strings(pos, prefix = "") {
  const wide = (lead, two, three, at) =>
    lead < two ? [lead, at] : lead < three ? [(lead - two) * 0x10000 + contexts(at), at + 1]
      : [contexts(at) * 0x10000 + contexts(at + 1), at + 2];
  for (;;) {
    let lead = contexts(pos++);
    if (lead >= 0x8000) {
      yield [prefix, wide(lead & 0x7fff, 0x4000, 0x7fff, pos)[0]];
      return;
    }
    if (lead >= 0x4040) {
      yield [prefix, lead < 0x7fc0 ? ((lead & 0x7fc0) - 0x4040) * 0x400 + contexts(pos)
        : contexts(pos) * 0x10000 + contexts(pos + 1)];
      pos += lead < 0x7fc0 ? 1 : 2;
      lead &= 0x3f;
    } else if (lead >= 0x40) {
      yield [prefix, (lead >> 6) - 1];
      lead &= 0x3f;
    }
    if (lead < 0x30) {
      yield* branch(pos + (lead === 0), (lead || contexts(pos)) + 1, prefix);
      return;
    }
    for (let n = lead - 0x2f; n > 0; n--) prefix += String.fromCharCode(contexts(pos++));
  }
  function* branch(pos, length, prefix) {
    while (length > 5) {
      const [delta, at] = wide(contexts(pos + 1), 0xfc00, 0xffff, pos + 2);
      yield* branch(at + delta, length >> 1, prefix);
      length -= length >> 1;
      pos = at;
    }
    for (; length > 1; length--) {
      const key = prefix + String.fromCharCode(contexts(pos));
      const lead = contexts(pos + 1);
      const [value, at] = wide(lead & 0x7fff, 0x4000, 0x7fff, pos + 2);
      if (lead >= 0x8000) yield [key, value];
      else yield* strings(at + value, key);
      pos = at;
    }
    yield* strings(pos + 1, prefix + String.fromCharCode(contexts(pos)));
  }
}

const hex = (c) => c.toString(16).toUpperCase().padStart(4, "0");
const points = (s) => Array.from(s, (c) => c.codePointAt(0));

// Collation elements are [primary, secondary, tertiary], the tertiary without its case bits.
const element = (p, s, t) => [p >>> 0, s & 0xffff, t & 0x3f3f];
const COMMON = 0x0500;

// All that c can map to, as [prefix, string, elements]: what must stand before c, c with the rest of
// a contraction, and what these are. null stands for an unassigned code point.
function* mappings(c, ce32, before = "", after = "") {
  const one = (...elements) => [before, String.fromCodePoint(c) + after, elements];
  if ((ce32 & 0xff) < 0xc0) {
    yield one(element(ce32 & 0xffff0000, ce32 & 0xff00, (ce32 & 0xff) << 8));
    return;
  }
  const index = ce32 >>> 13;
  const count = (ce32 >> 8) & 31;
  switch (ce32 & 15) {
    case 1: // LONG_PRIMARY
      yield one(element(ce32 & 0xffffff00, COMMON, COMMON));
      return;
    case 2: // LONG_SECONDARY
      yield one(element(0, ce32 >>> 16, ce32 & 0xff00));
      return;
    case 4: // LATIN_EXPANSION
      yield one(element(ce32 & 0xff000000, COMMON, (ce32 >>> 8) & 0xff00), element(0, ce32 & 0xff00, COMMON));
      return;
    case 5: { // EXPANSION32
      const list = [];
      for (let i = 0; i < count; i++) {
        for (const [, , elements] of mappings(c, ce32s(index + i))) list.push(...elements);
      }
      yield one(...list);
      return;
    }
    case 6: { // EXPANSION
      const list = [];
      for (let i = 0; i < count; i++) {
        const ce = ces(index + i);
        list.push(element(Number(ce >> 32n), Number((ce >> 16n) & 0xffffn), Number(ce & 0xffffn)));
      }
      yield one(...list);
      return;
    }
    case 8: // PREFIX
      yield* mappings(c, contextCE32(index), before, after);
      for (const [text, value] of strings(index + 2)) {
        yield* mappings(c, value, [...text].reverse().join("") + before, after);
      }
      return;
    case 9: // CONTRACTION; CONTRACT_SINGLE_CP_NO_MATCH means that the default is the caller's
      if ((ce32 & 0x100) === 0 || after === "") yield* mappings(c, contextCE32(index), before, after);
      for (const [text, value] of strings(index + 2)) yield* mappings(c, value, before, after + text);
      return;
    case 10: // DIGIT
      yield* mappings(c, ce32s(index), before, after);
      return;
    case 11: // U0000
      yield* mappings(c, ce32s(0), before, after);
      return;
    case 12: // HANGUL: decomposes
      return;
    case 14: { // OFFSET: incThreeBytePrimaryByOffset
      const ce = ces(index);
      const base = Number(ce >> 32n);
      const first = Number((ce >> 8n) & 0xffffffn);
      const [least, size] = ce & 0x80n ? [4, 251] : [2, 254];
      let n = (c - first) * Number(ce & 0x7fn) + ((base >>> 8) & 0xff) - 2;
      let p = ((n % 254) + 2) << 8;
      n = Math.floor(n / 254) + ((base >>> 16) & 0xff) - least;
      p |= ((n % size) + least) << 16;
      p += ((base & 0xff000000) >>> 0) + Math.floor(n / size) * 0x1000000;
      yield one(element(p, COMMON, COMMON));
      return;
    }
    case 15: // IMPLICIT
      yield one(null);
      return;
  }
  throw new Error(`U+${hex(c)}: CE32 ${ce32.toString(16)}`);
}

// What strings in NFD can contain is enough: they are compared in NFD. A mapping with a prefix
// becomes a contraction of the two; the one prefix there is, l before a middle dot, is plain.
const scalars = function* () {
  for (let c = 0; c < 0x110000; c++) {
    if (c < 0xd800 || c > 0xdfff) yield [c, String.fromCodePoint(c)]; // no surrogate is in a Go string
  }
};
const normal = (s) => s === s.normalize("NFD");
const table = new Map(); // string -> elements
const prefixed = [];
for (const [c, s] of scalars()) {
  if (!normal(s)) continue;
  for (const [prefix, text, elements] of mappings(c, trie(c))) {
    if (elements[0] === null || !normal(prefix + text)) continue;
    if (prefix !== "") prefixed.push([prefix, text, elements]);
    else if (table.has(text)) throw new Error(`twice: ${text}`);
    else table.set(text, elements.filter((e) => e.some((weight) => weight > 0)));
  }
}
for (const [prefix, text, elements] of prefixed) {
  if (prefix.length !== 1) throw new Error(`a prefix that is not one letter: ${prefix}`);
  table.set(prefix + text, [...table.get(prefix), ...elements]);
}

// The reader extends a contraction by one code point at a time.
for (const text of table.keys()) {
  const all = points(text);
  for (let n = 2; n < all.length; n++) {
    if (!table.has(String.fromCodePoint(...all.slice(0, n)))) throw new Error(`no prefix of ${all.map(hex)}`);
  }
}

// Weights are numbered from 1 in their order. Unassigned code points take the primaries after the
// last one below theirs (UNASSIGNED_IMPLICIT_BYTE), in their own order.
const numbered = [0, 1, 2].map((level) => {
  const weights = new Set([0]);
  for (const elements of table.values()) for (const e of elements) weights.add(e[level]);
  return new Map([...weights].sort((a, b) => a - b).map((weight, i) => [weight, i]));
});
const unassigned = [...numbered[0].keys()].filter((p) => p <= 0xfe040200).length;
for (const [p, i] of numbered[0]) if (i >= unassigned) numbered[0].set(p, i + 0x110000);
const number = (e) => e.reduce((all, weight, level) => all * 2 ** 16 + numbered[level].get(weight), 0);
const common = number(element(0, COMMON, COMMON));
const place = 2 ** 32; // of the primary in an element

// Runs of code points and primaries that follow each other, in the order of the primaries.
const runs = [];
const others = [];
const singles = [];
for (const [text, list] of table) {
  const [elements, code] = [list.map(number), points(text)];
  if (code.length === 1 && elements.length === 1 && elements[0] > place && elements[0] % place === common) singles.push([Math.floor(elements[0] / place), code[0]]);
  else others.push({ text: code, elements });
}
singles.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
for (let i = 0, end = [0, 0]; i < singles.length; ) {
  let n = 1;
  while (singles[i + n] && singles[i + n].every((x, k) => x === singles[i][k] + n)) n++;
  runs.push([...singles[i].map((x, k) => x - end[k]), n]);
  end = singles[i].map((x) => x + n);
  i += n;
}

// Canonical decompositions, and combining classes: which of two marks comes first in NFD tells
// whose class is lower, so the classes are numbered from 1 like the weights. U+0345 has the
// highest class there is, U+0334 the lowest.
const swaps = (a, b) => !normal(a + b);
const decompositions = [];
const marks = [];
for (const [c, s] of scalars()) {
  if (!normal(s)) {
    if (c < 0xac00 || c > 0xd7a3) decompositions.push([c, ...points(s.normalize("NFD"))]);
  } else if (c === 0x345 || swaps("\u0345", s)) marks.push(s);
  else if (swaps(s, "\u0334")) throw new Error(`U+${hex(c)} has a higher class than U+0345`);
}
const order = (a, b) => (swaps(a, b) ? 1 : swaps(b, a) ? -1 : 0);
const classes = [];
for (const mark of marks.sort(order)) {
  if (classes.length === 0 || order(classes.at(-1)[0], mark) !== 0) classes.push([]);
  classes.at(-1).push(mark);
}

const versions = `Node.js ${process.version}, ICU ${process.versions.icu}, CLDR ${process.versions.cldr}, Unicode ${process.versions.unicode}`;
const json = JSON.stringify({
  source: `CLDR root collation, from ${versions}.`, unassigned: unassigned * place + common, runs,
  mappings: others, decompositions, classes: classes.map((marks) => marks.flatMap(points)),
});
process.stdout.write(zlib.gzipSync(json, { level: 9 }));
