/** Scripts whose letters the joiners U+200C and U+200D shape. */
const shaped = ["Arabic", "Syriac", "Mongolian", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu",
  "Kannada", "Malayalam", "Sinhala"].map((name) => `\\p{Script=${name}}`).join("");
const picture = "\\p{So}\\u2194\\u2195";

/** A joiner or a variation selector where a script or a picture needs it. */
const needed = [
  `(?<=[${shaped}])[\\u200c\\u200d](?=[${shaped}])`,
  `(?<=[${picture}])[\\ufe0e\\ufe0f]`, "(?<=[0-9#*])\\ufe0f(?=\\u20e3)",
  `(?<=[${picture}\\ufe0f\\u{1f3fb}-\\u{1f3ff}])\\u200d(?=[${picture}])`,
].join("|");
const hidden = "[\\p{C}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}]";
const blank = "[\\p{Zs}\\u2800]";
const pattern = new RegExp(`(${needed})|${hidden}|^${blank}+|${blank}+$`, "gu");

const code = (c) => {
  const hex = c.codePointAt(0).toString(16);
  return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, "0")}`;
};

/**
 * Returns a text that others wrote with the characters spelled out that cannot be seen or that change the direction of
 * other ones. handoffctl has the same rule.
 */
export const visible = (text) => String(text ?? "").replace(pattern, (c, kept) => kept ?? Array.from(c, code).join(""));

/** Returns a value as JSON of several lines, spelled out likewise. */
export const visibleJSON = (value) => visible(JSON.stringify(value, null, 2).slice(0, 20_000)).replaceAll("\\u000a", "\n");
