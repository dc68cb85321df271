// A part of a file of any size, as lines. Each line knows where in the file it begins, so none is
// lost or doubled, wherever the part was begun and however it grew. Knows nothing of the page.
//
// A long log has gaps: output that was not kept. A gap is a line of its own, however long it is.

export const CHUNK = 128 * 1024; // bytes in a request
export const PIECE = 64 * 1024; // a longer line is shown in pieces
const REQUEST_MAX = 1024 * 1024;
const BYTES_MAX = 4 * 1024 * 1024; // what is further away is forgotten, and read again when needed
const NEWLINE = 10;
const decoder = new TextDecoder();

export class LogWindow {
  /** `read(offset, length)` returns `{data, size, gaps}`: bytes, with zeros for gaps; the size of
   * the file; and where gaps are, as pairs of an offset and a length. */
  constructor(read) {
    this.read = read;
    this.size = 0;
    this.lines = []; // {at, end, text, open, gap}: `open` has no end of line yet
  }

  get start() { return this.lines[0]?.at ?? 0; }

  get end() { return this.lines.at(-1)?.end ?? 0; }

  get complete() { return this.end >= this.size; }

  /** The lines of a part; the first one may have begun before it, unless `whole`. */
  async part(offset, length, whole) {
    const found = await this.read(offset, Math.min(length, REQUEST_MAX));
    this.size = found.size;
    return linesOf(found, offset, whole);
  }

  /** Shows the file from the first line that begins at or after this byte. */
  async openAt(offset) {
    const from = Math.max(0, offset - 1); // whether a line begins there, the byte before it tells
    this.lines = await this.part(from, CHUNK, from === 0);
    if (!this.lines.length && offset > 0) await this.openEnd();
  }

  async openEnd() {
    await this.part(0, 1, true);
    const from = Math.max(0, this.size - CHUNK);
    this.lines = await this.part(from, CHUNK, from === 0);
    while (!this.complete && await this.down());
  }

  /** Adds what follows. Returns the numbers of lines that were `{added, dropped}`, or null. */
  async down() {
    const last = this.lines.at(-1);
    const added = await this.part(last?.open ? last.at : this.end, CHUNK, true);
    if (!added.length || added.at(-1).end <= this.end) return null;
    if (last?.open) this.lines.pop();
    this.lines.push(...added);
    let dropped = 0;
    while (beyond(this.lines[dropped], this.end)) dropped += 1;
    this.lines.splice(0, dropped);
    return { added: added.length, dropped };
  }

  /** Adds what comes before. */
  async up() {
    const { start } = this;
    if (!start) return null;
    const added = await this.before(start);
    const last = added.at(-1);
    if (!last) return null;
    Object.assign(last, { open: false, end: start, gap: last.gap && start - last.at });
    this.lines.unshift(...added);
    let dropped = 0;
    while (beyond(this.lines.at(-1 - dropped), this.start)) dropped += 1;
    this.lines.splice(this.lines.length - dropped, dropped);
    return { added: added.length, dropped };
  }

  /** The lines that end at `start`. Where a gap begins that ends there is searched for. */
  async before(start) {
    const within = ([line]) => line?.gap && line.end >= start;
    const from = Math.max(0, start - CHUNK);
    const lines = (await this.part(from, start - from, from === 0)).filter((line) => line.at < start);
    if (from === 0 || !within(lines)) return lines;
    let [before, begin] = [-1, from];
    while (begin - before > 1) {
      const middle = Math.floor((before + begin) / 2);
      if (within(await this.part(middle, 1, true))) begin = middle;
      else before = middle;
    }
    return [{ at: begin, end: start, text: "", open: false, gap: start - begin }];
  }
}

const beyond = (line, end) => !line.gap && Math.abs(end - line.at) > BYTES_MAX;

function linesOf({ data, gaps = [] }, offset, whole) {
  const skipped = whole || gaps[0]?.[0] === offset ? 0 : firstLine(data);
  const lines = [];
  let at = skipped;
  for (const [begin, length] of gaps) {
    lines.push(...closed(split(data.subarray(at, begin - offset), offset + at)));
    lines.push({ at: begin, end: begin + length, text: "", open: false, gap: length });
    at = Math.min(data.length, begin + length - offset);
  }
  return lines.concat(split(data.subarray(at), offset + at));
}

function closed(lines) {
  if (lines.length) lines.at(-1).open = false;
  return lines;
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
    const shown = data[end - 1] === NEWLINE ? end - 1 : end;
    lines.push({ at: offset + at, end: offset + end, text: decoder.decode(data.subarray(at, shown)), open });
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
  let at = from;
  while (backwards ? at > 0 : at < size) {
    const begin = backwards ? Math.max(0, at - REQUEST_MAX) : at;
    const found = await read(begin, backwards ? at - begin : REQUEST_MAX);
    const lines = linesOf(found, begin, !backwards || begin === 0).filter((line) => !backwards || line.at < at);
    if (!lines.length) return null;
    const next = backwards ? lines[0].at : lines.at(-1).open && lines.length > 1 ? lines.at(-1).at : lines.at(-1).end;
    const asked = lines.filter((line) => !line.gap && (backwards || line.at < next));
    const hit = (backwards ? asked.reverse() : asked).find((line) => matches(line.text));
    if (hit) return hit.at;
    if (next === at) return null;
    at = next;
    if (told(backwards ? 1 - at / size : at / size) === false) return null;
  }
  return null;
}
