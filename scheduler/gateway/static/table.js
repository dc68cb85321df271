// Columns of jobs: their names, and what stands in their cells.

import { html } from "./vendor/preact-htm.js";
import { now } from "./api.js";
import { JobLink, State, Text } from "./parts.js";
import { UNKNOWN, ago, known, short, span } from "./words.js";

const KINDS = ["param", "label", "tag", "annotation", "option", "last", "min", "max"];

/** `param.lr` is the `param` named `lr`. */
export function nameOf(column) {
  const [kind, ...rest] = column.split(".");
  return KINDS.includes(kind) && rest.length ? { kind, name: rest.join(".") } : { kind: "", name: column.replace("_at", "").replace("_", " ") };
}

export const isMeasured = (column) => /^(last|min|max)\./.test(column);
export const isNumber = (column) => isMeasured(column) || column === "seconds" || column === "epochs_done";

/** A value as text, in few digits. */
export function valueText(column, value) {
  if (!known(value)) return UNKNOWN;
  if (column.endsWith("_at") && typeof value === "number") return ago(value, now());
  if (column === "seconds") return span(value);
  if (typeof value === "number") return short(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function Cell({ column, value, row }) {
  if (column === "name") return html`<${JobLink} job=${row} />`;
  if (column === "state") return html`<${State} state=${value} />`;
  return html`<${Text}>${valueText(column, value)}<//>`;
}
