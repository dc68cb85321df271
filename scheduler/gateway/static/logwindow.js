// A part of a file of any size, as lines. Each line knows where in the file it begins, so none is
// lost or doubled, wherever the part was begun and however it grew. Knows nothing of the page.

export const CHUNK = 128 * 1024; // bytes in a request
export const PIECE = 64 * 1024; // a longer line is shown in pieces
const BYTES_MAX = 4 * 1024 * 1024; // what is further away is forgotten, and read again when needed
const NEWLINE = 10;
const decoder = new TextDecoder();

export class LogWindow {
  /** `read(offset, length)` returns `{data, size, offset}`: bytes, the file's size, where they begin. */
  constructor(read) {
    this.read = read;
    this.size = 0;
    this.lines = []; // {at, end, text, open}: `open` has no end of line yet
  }

  get start() { return this.lines[0]?.at ?? 0; }

  get end() { return this.lines.at(-1)?.end ?? 0; }

  get complete() { return this.end >= this.size; }

  async fetch(offset, length) {
    const found = await this.read(offset, length);
    this.size = found.size;
    return { data: found.data, at: found.offset ?? offset };
  }

  /** Shows the file from the first line that begins at or after this byte. */
  async openAt(offset) {
    const from = Math.max(0, offset - 1); // whether a line begins there, the byte before it tells
    const { data, at } = await this.fetch(from, CHUNK);
    const skipped = from === 0 || at > from ? 0 : firstLine(data);
    this.lines = split(data.subarray(skipped), at + skipped);
    if (!this.lines.length && offset > 0) await this.openEnd();
  }

  async openEnd() {
    await this.fetch(0, 0);
    const from = Math.max(0, this.size - CHUNK);
    const { data, at } = await this.fetch(from, CHUNK);
    const skipped = from === 0 || at > from ? 0 : firstLine(data);
    this.lines = split(data.subarray(skipped), at + skipped);
    while (!this.complete && await this.down());
  }

  /** Adds what follows. Returns the numbers of lines that were `{added, dropped}`, or null. */
  async down() {
    const last = this.lines.at(-1);
    const from = last?.open ? last.at : this.end;
    const { data, at } = await this.fetch(from, CHUNK);
    if (from + data.length <= this.end) return null;
    if (last?.open) this.lines.pop();
    const added = split(data, at);
    this.lines.push(...added);
    let dropped = 0;
    while (this.end - this.lines[dropped].at > BYTES_MAX) dropped += 1;
    this.lines.splice(0, dropped);
    return { added: added.length, dropped };
  }

  /** Adds what comes before. */
  async up() {
    const { start } = this;
    if (!start) return null;
    const from = Math.max(0, start - CHUNK);
    const { data, at } = await this.fetch(from, start - from);
    if (at >= start) return null; // what was there is not kept any more
    const skipped = from === 0 || at > from ? 0 : firstLine(data);
    const added = split(data.subarray(skipped, start - at), at + skipped);
    if (!added.length) return null;
    added.at(-1).open = false;
    this.lines.unshift(...added);
    let dropped = 0;
    while (this.lines.at(-1 - dropped).end - this.start > BYTES_MAX) dropped += 1;
    this.lines.splice(this.lines.length - dropped, dropped);
    return { added: added.length, dropped };
  }
}

/** Where the first whole line begins. If there is none, the data are within a very long line. */
function firstLine(data) {
  const newline = data.indexOf(NEWLINE);
  if (newline >= 0 && newline + 1 < data.length) return newline + 1;
  let within = 0; // not in the middle of a character
  while (within < 3 && (data[within] & 0xc0) === 0x80) within += 1;
  return within;
}

export function split(data, offset) {
  const lines = [];
  let at = 0;
  while (at < data.length) {
    const newline = data.indexOf(NEWLINE, at);
    let end = newline < 0 ? data.length : newline + 1;
    let open = newline < 0;
    if (end - at > PIECE) {
      end = at + PIECE;
      while (end > at + PIECE - 4 && (data[end] & 0xc0) === 0x80) end -= 1;
      open = false;
    }
    const closed = data[end - 1] === NEWLINE ? end - 1 : end;
    lines.push({ at: offset + at, end: offset + end, text: decoder.decode(data.subarray(at, closed)), open });
    at = end;
  }
  return lines;
}

/**
 * The next line that matches, after `from` or before it; null if there is none.
 *
 * `told(fraction)` hears how far it is and returns false to give up.
 */
export async function find(read, size, from, matches, backwards, told) {
  const step = 8 * CHUNK;
  let at = from;
  while (backwards ? at > 0 : at < size) {
    const begin = backwards ? Math.max(0, at - step) : at;
    const { data, offset = begin } = await read(begin, backwards ? at - begin : step);
    if (!data.length) return null;
    const skipped = backwards && begin > 0 && offset === begin ? firstLine(data) : 0;
    const lines = split(data.subarray(skipped), offset + skipped);
    const whole = !backwards && offset + data.length < size && lines.length > 1
      ? lines.slice(0, -1) : lines; // the last one may go on
    const hit = (backwards ? whole.reverse() : whole).find((line) => matches(line.text));
    if (hit) return hit.at;
    const next = backwards ? offset + skipped : lines.at(whole.length - 1).end;
    if (next === at || (backwards && offset > begin)) return null;
    at = next;
    if (told(backwards ? 1 - at / size : at / size) === false) return null;
  }
  return null;
}
