// Numbers and moments as text, as scheduler/presentation/render.py writes them. Pure.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const formats = [0, 1, 2].map((digits) => new Intl.NumberFormat("en", {
  minimumFractionDigits: digits,
  maximumFractionDigits: digits,
  roundingMode: "halfEven", // as Python rounds
  useGrouping: false,
}));
const grouped = new Intl.NumberFormat("en");

export const UNKNOWN = "–";

export const known = (value) => value !== null && value !== undefined;

export const fixed = (value, digits = 0) => formats[digits].format(value);

/** `6,000`; a number that is not known is a dash. */
export const number = (value) => (known(value) ? grouped.format(value) : UNKNOWN);

export const percent = (value) => (known(value) ? `${fixed(100 * value)}%` : UNKNOWN);

export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** About four digits: `12k`, `0.0031`, `1e-7`. */
export function short(value, digits = 4) {
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e9)) return value.toExponential(Math.max(1, digits - 4)).replace(".0e", "e").replace("e+", "e");
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(digits))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(digits))}k`;
  return String(Number(value.toPrecision(digits)));
}

/** The same for the marks of an axis: with as many digits as tell them apart. */
export function shortMarks(values) {
  let texts = [];
  for (let digits = 4; digits <= 12; digits += 1) {
    texts = values.map((value) => short(value, digits));
    if (new Set(texts).size === values.length) break;
  }
  return texts;
}

/** About two digits: seconds do not matter in a span of hours. */
export function span(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const s = Math.max(0, seconds);
  if (s < 9.95) return `${fixed(s, 1)} s`;
  if (s < 1.5 * MINUTE) return `${fixed(s)} s`;
  if (s < 1.5 * HOUR) return `${fixed(s / MINUTE)} min`;
  if (s < 10 * HOUR) {
    const minutes = Number(fixed(s / MINUTE));
    const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
    return rest ? `${hours} h ${rest} min` : `${hours} h`;
  }
  return s < 1.5 * DAY ? `${fixed(s / HOUR)} h` : `${fixed(s / DAY)} d`;
}

export function ago(moment, now) {
  if (!known(moment)) return UNKNOWN;
  const seconds = Math.max(0, Math.trunc(now - moment));
  if (seconds === 0) return "just now";
  return `${seconds < MINUTE ? `${seconds} s` : span(seconds)} ago`;
}

const two = (n) => String(n).padStart(2, "0");

/** Local time, with the date unless it is today. */
export function clock(moment, now) {
  if (!known(moment)) return UNKNOWN;
  const [at, today] = [new Date(moment * 1000), new Date(now * 1000)];
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  if (at.toDateString() === today.toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** Text from other users must not look like something else: what cannot be seen is shown as �. */
export const printable = (text) => String(text ?? "").replace(/[^\P{C}]|[^\P{Z} ]/gu, "\ufffd");

export const shortId = (id) => id.slice(-8);

export const ENDED = new Set(["FINISHED", "FAILED", "CANCELED", "SKIPPED"]);
export const WAITING = new Set(["QUEUED", "HELD"]);
export const live = (job) => !ENDED.has(job.state);
