// A line of a job's output as pieces with colours. All other escapes are shown, never obeyed. Pure.

const COLOUR = /\x1b\[([0-9;:]{0,60})m/g;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const KEPT = "\t\u200c\u200d"; // the last two are part of Persian words and of emoji
export const SHOWN_MAX = 5000; // characters of a line

/** `{pieces: [{text, name}], overwritten, cut}`: how often it was rewritten, and what is left out. */
export function pieces(line) {
  // A progress bar returns to the beginning of its line: what stands there in the end is shown.
  const versions = line.split("\r").filter(Boolean);
  const last = versions.at(-1) ?? "";
  const text = last.slice(0, SHOWN_MAX);
  const found = [];
  let [at, style] = [0, new Set()];
  for (const code of text.matchAll(COLOUR)) {
    add(found, text.slice(at, code.index), style);
    style = restyled(style, code[1]);
    at = code.index + code[0].length;
  }
  add(found, text.slice(at), style);
  return {
    pieces: found,
    overwritten: Math.max(0, versions.length - 1),
    cut: last.length - text.length,
  };
}

/** The line without colours, as a search sees it. */
export const plain = (line) => line.replace(COLOUR, "");

function add(found, text, style) {
  if (text) found.push({ text: visible(text), name: [...style].map((each) => `a-${each}`).join(" ") });
}

export const visible = (text) => text.replace(UNSEEN, (character) => {
  if (KEPT.includes(character)) return character;
  const code = character.codePointAt(0);
  if (code < 0x20 || code === 0x7f) return `^${String.fromCharCode(code ^ 0x40)}`;
  const hex = code.toString(16);
  if (code > 0xffff) return `\\U${hex.padStart(8, "0")}`;
  return code > 0xff ? `\\u${hex.padStart(4, "0")}` : `\\x${hex.padStart(2, "0")}`;
});

const isColour = (name) => name >= 30;

function restyled(before, codes) {
  const style = new Set(before);
  const numbers = codes.split(/[;:]/).map(Number);
  const paint = (name) => {
    style.forEach((each) => isColour(each) && style.delete(each));
    if (name !== null) style.add(name);
  };
  for (let i = 0; i < numbers.length; i += 1) {
    const code = numbers[i];
    if (code === 0) style.clear();
    else if (code >= 1 && code <= 4) style.add(code);
    else if (code === 22) [1, 2].forEach((each) => style.delete(each));
    else if (code === 23 || code === 24) style.delete(code - 20);
    else if (code >= 30 && code <= 37) paint(code);
    else if (code >= 90 && code <= 97) paint(code - 60);
    else if (code === 39) paint(null);
    else if (code === 38 || code === 48) {
      const [kind, ...rest] = numbers.slice(i + 1);
      if (code === 38) paint(kind === 5 ? ofPalette(rest[0]) : nearest(rest.slice(0, 3)));
      i += kind === 5 ? 2 : 4;
    }
  }
  return style;
}

const nearest = (rgb) => 30 + rgb.reduce((sum, each, i) => sum + (each > 110 ? 1 << i : 0), 0);

function ofPalette(index = 0) {
  if (index < 16) return 30 + (index % 8);
  if (index > 231) return index > 243 ? 37 : 30;
  const cube = index - 16;
  return nearest([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((n) => n * 51));
}
