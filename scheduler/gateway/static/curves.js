// What jobs logged, as curves: x by step, time or epoch; smoothed; in colours by a key. Pure.

export const NOT_NUMBERS = { NaN: NaN, Infinity, "-Infinity": -Infinity };

/** A number of an answer; JSON knows no NaN. What is no number is NaN, too. */
export const numeric = (value) => (typeof value === "number" ? value : typeof value === "boolean" ? Number(value) : NOT_NUMBERS[value] ?? NaN);

/** Points of an answer as columns, in the order of x. `x`: "step", "time" (since `began`) or "epoch"
 * (by `epochs`, the curve of the same job that says it). */
export function columns({ times, steps, values }, x, began = 0, epochs = null) {
  let xs;
  if (x === "step") xs = steps ? Float64Array.from(steps, (step) => step ?? NaN) : Float64Array.from(values, (_, i) => i);
  else if (x === "epoch") xs = epochs ? Float64Array.from(times, (time) => along(epochs.times, epochs.values, time)) : new Float64Array(times.length).fill(NaN);
  else xs = Float64Array.from(times, (time) => time - began);
  let ys = Float64Array.from(values, numeric);
  if (isOrdered(xs)) return { xs, ys };
  const order = Array.from(xs, (_, i) => i).filter((i) => !Number.isNaN(xs[i])).sort((one, other) => xs[one] - xs[other]);
  [xs, ys] = [xs, ys].map((all) => Float64Array.from(order, (i) => all[i]));
  return { xs, ys };
}

function isOrdered(values) {
  for (let i = 0; i < values.length; i += 1) if (Number.isNaN(values[i]) || values[i] < values[i - 1]) return false;
  return true;
}

/** What was between two points; before the first and after the last: theirs. */
export function along(xs, ys, x) {
  let [low, high] = [0, xs.length - 1];
  if (high < 0) return NaN;
  if (x <= xs[0]) return numeric(ys[0]);
  if (x >= xs[high]) return numeric(ys[high]);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const [before, after] = [numeric(ys[low]), numeric(ys[high])];
  return before + (after - before) * ((x - xs[low]) / (xs[high] - xs[low] || 1));
}

const WINDOWS = 300; // a weight is for this part of what is shown, however many points that has

/** Exponential mean, `weight` from 0 (none) to below 1. It does not begin at 0, and a gap stays one. */
export function smoothed({ xs, ys }, weight) {
  if (!weight || xs.length < 3) return { xs, ys };
  const unit = (xs[xs.length - 1] - xs[0]) / WINDOWS || 1;
  const found = new Float64Array(ys.length);
  let [sum, counted, last] = [0, 0, xs[0]];
  for (let i = 0; i < ys.length; i += 1) {
    if (!Number.isFinite(ys[i])) { found[i] = NaN; continue; }
    const kept = weight ** Math.max(0.05, (xs[i] - last) / unit);
    [sum, counted, last] = [sum * kept + ys[i] * (1 - kept), counted * kept + (1 - kept), xs[i]];
    found[i] = sum / counted;
  }
  return { xs, ys: found };
}

/** A curve with what was answered for the time from this moment on. */
export function joined(curve, news, from) {
  const kept = curve.times.findIndex((time) => time >= from);
  const till = kept < 0 ? curve.times.length : kept;
  const both = (name) => curve[name].slice(0, till).concat(news[name]);
  return { ...curve, times: both("times"), values: both("values"), steps: curve.steps && news.steps ? both("steps") : null };
}

// --- colours ------------------------------------------------------------------------------------

const HUES = [210, 25, 140, 350, 275, 185, 50, 320, 95, 240];

/** As many colours as there are values; those of numbers go from one to the other. */
export function palette(count, ordered, dark) {
  const light = dark ? 66 : 40;
  if (ordered && count > 4) {
    return Array.from({ length: count }, (_, i) => `hsl(${260 - (220 * i) / (count - 1)} 75% ${light}%)`);
  }
  return Array.from({ length: count }, (_, i) => (i < HUES.length
    ? `hsl(${HUES[i]} ${dark ? 70 : 72}% ${HUES[i] === 50 ? light - (dark ? 4 : 8) : light}%)`
    : `hsl(${(i * 137.5) % 360} ${i % 2 ? 45 : 75}% ${light + (i % 3) * (dark ? 6 : -6)}%)`));
}

export const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5]];

/** The different values in order: numbers by size, others by their text. */
export function inOrder(values) {
  const different = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  const numbers = different.every((value) => typeof value === "number");
  different.sort(numbers ? (one, other) => one - other : (one, other) => String(one).localeCompare(String(other), "en", { numeric: true }));
  return { different, numbers };
}
