// Prints comparisons as Intl.Collator makes them in this Node.js, for the test of package collation:
//
//   node collation.mjs > collation.json          what is committed
//   node collation.mjs 100000 7 > /tmp/more.json as many pairs as that from another seed; then
//   go test ./worldengine/internal/core/town/internal/collation -comparisons=/tmp/more.json
const [count, seed] = [Number(process.argv[2] ?? 2500), Number(process.argv[3] ?? 1)];

// mulberry32: the same pairs every time.
let state = seed;
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chars = (s) => [...s];

const all = { assigned: [], unassigned: [], mark: [], emoji: [], indic: [], arabic: [], han: [], decomposes: [], ignorable: [] };
const samples = []; // two for every 128 code points in which any is assigned, so of every block
for (let start = 0; start < 0x110000; start += 128) {
  const assigned = [];
  for (let c = start; c < start + 128; c++) {
    if (c >= 0xd800 && c < 0xe000) continue; // no surrogate is valid alone
    const s = String.fromCodePoint(c);
    if (/[\p{Cn}\p{Co}]/u.test(s)) {
      all.unassigned.push(s);
      continue;
    }
    assigned.push(s);
    if (/\p{Unified_Ideograph}/u.test(s)) all.han.push(s);
    else if (c < 0xac00 || c > 0xd7a3) {
      all.assigned.push(s);
      if (s !== s.normalize("NFD")) all.decomposes.push(s);
    }
    if (/\p{M}/u.test(s)) all.mark.push(s);
    if (/[\p{Extended_Pictographic}\p{Emoji}]/u.test(s)) all.emoji.push(s);
    if (/[\p{Cc}\p{Default_Ignorable_Code_Point}]/u.test(s)) all.ignorable.push(s);
    if (/\p{Script=Arabic}|\p{Script=Hebrew}|\p{Script=Syriac}/u.test(s)) all.arabic.push(s);
    if (c >= 0x900 && c < 0x1100) all.indic.push(s);
  }
  if (assigned.length > 0) samples.push(pick(assigned), pick(assigned));
}

// One way to come by a character for each kind of string.
const either = (share, a, b) => () => (random() < share ? a() : b());
const any = (list) => () => pick(list);
const kinds = {
  assigned: any(all.assigned),
  unassigned: either(0.5, any(all.unassigned), any(all.assigned)),
  marks: either(0.3, any(chars("aeolLIкуиاوي")), any(all.mark)),
  emoji: either(0.3, any(chars("\u200d\u200d\ufe0f🏻🏽🏿♀♂🇦🇧")), any(all.emoji)),
  indic: any(all.indic),
  arabic: either(0.3, any(chars("ايوهك\u0653\u0654\u0655\u064b\u0651")), any(all.arabic)),
  han: either(0.8, any(all.han), any(all.decomposes)),
  hangul: either(0.5, () => String.fromCodePoint(0xac00 + below(11172)), () => String.fromCodePoint(0x1100 + below(256))),
  decomposing: either(0.6, any(all.decomposes), any(all.mark)),
  tibetan: any(chars("\u0f71\u0f72\u0f73\u0f74\u0f75\u0f76\u0f77\u0f78\u0f79\u0f80\u0f81\u0fb2\u0fb3\u0f40\u0f39\u0327\u0301a")),
  close: any(chars("aAáeéß-_ .lL·ŀ\u0301\u0327\u0334\u0000\u00adⒶªＡ𝐚")),
  prevowels: either(0.5, any(chars("เแโใไກເແໂໃໄ\uaab5\uaab6\uaab9\uaabb\uaabc\u19b5\u19b6")),
    any(chars("กขคงກຂຄ\u0e31\u0e38\u0e48\u0eb8\u0ec8\uaa80\uaa81\u1980\u1981\u0301"))),
  ignorable: either(0.5, any(all.ignorable), any(chars("ab1"))),
};
const names = Object.keys(kinds);
kinds.mixed = () => kinds[pick(names)]();
const ascii = () => String.fromCharCode(32 + below(95));
const collator = new Intl.Collator("und");
const { locale } = collator.resolvedOptions(); // whatever the machine prefers
if (!/^(und|en)\b/.test(locale)) throw new Error(`${locale} has an order of its own: set LC_ALL=C`);

// ICU must take a string for equal to its own NFD. The few that it does not are left out, and
// counted: it fails to put marks in order when one beyond U+FFFF follows the beginning of a
// contraction and is followed by one of a lower class.
let skipped = 0;
const consistent = (s) => collator.compare(s, s.normalize("NFD")) === 0 || (skipped++, false);

function string(kind) {
  for (;;) {
    const s = Array.from({ length: 1 + below(6) }, either(0.15, ascii, kinds[kind])).join("");
    if (consistent(s)) return s;
  }
}

// A string that differs little.
function altered(text, kind) {
  const list = chars(text);
  const i = below(list.length);
  switch (below(4)) {
    case 0: list[i] = kinds[kind](); break;
    case 1: list.splice(i, 1); break;
    case 2: list.splice(i, 0, kinds[kind]()); break;
    case 3: [list[i], list[list.length - 1]] = [list[list.length - 1], list[i]];
  }
  return list.join("");
}

// In order, with what compares as equal on one line.
function sorted(strings) {
  const lines = [];
  for (const s of strings.sort(collator.compare)) {
    if (lines.length > 0 && collator.compare(lines.at(-1)[0], s) === 0) lines.at(-1).push(s);
    else lines.push([s]);
  }
  return lines;
}

const lists = { samples: sorted([...new Set(samples)]) };
for (const kind of Object.keys(kinds)) {
  lists[kind] = sorted([...new Set(Array.from({ length: 120 }, () => string(kind)))]);
}
const pairs = [];
while (pairs.length < count) {
  const kind = pick(Object.keys(kinds));
  const a = string(kind);
  const b = random() < 0.5 ? string(kind) : altered(a, kind);
  if (!consistent(b)) continue;
  pairs.push([a, b, Math.sign(collator.compare(a, b))]);
}

// One string, list line or pair to a line, in ASCII.
const ascii7 = (v) => JSON.stringify(v).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const rows = (list) => `[\n${list.map(ascii7).join(",\n")}\n]`;
const { icu, cldr, unicode } = process.versions;
process.stdout.write(`{
"from": ${ascii7(`Node.js ${process.version}, ICU ${icu}, CLDR ${cldr}, Unicode ${unicode}`)},
"skipped": ${skipped},
"sorted": {
${Object.entries(lists).map(([name, list]) => `${ascii7(name)}: ${rows(list)}`).join(",\n")}
},
"pairs": ${rows(pairs)}
}
`);
