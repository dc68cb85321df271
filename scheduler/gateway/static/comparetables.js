// What was set for jobs and what it came to, a column for each job.

import { html } from "./vendor/preact-htm.js";
import { Empty, Panel, Text } from "./parts.js";
import { UNKNOWN, known, number, printable, short } from "./words.js";

const Table = ({ jobs, looks, children, label }) => html`<div class="scroll tall" tabindex="0" role="region" aria-label=${label}><table class="compared">
  <thead><tr><th></th>${jobs.map((job) => html`<th key=${job.id}><i class="swatch" style=${{ background: looks.of(job.id).colour }} /><${Text}>${looks.of(job.id).name}<//></th>`)}</tr></thead>
  <tbody>${children}</tbody></table></div>`;

/** As they were set: a text that looks like a number is in quotes. */
export function settingText(value) {
  if (value === undefined) return UNKNOWN;
  if (typeof value !== "string") return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value);
  } catch {
    return value || '""';
  }
}

export function Config({ data, looks, one, change }) {
  const all = one("all") === "true";
  const note = data.equal ? `${number(data.equal)} more are the same in all` : "";
  return html`<${Panel} title="What was set" note=${all ? "" : note} body=${false} end=${html`<label class="check"><input type="checkbox" checked=${all}
      onChange=${(event) => change({ all: event.target.checked ? "true" : "" })} />also what is the same</label>`}>
    ${data.config.length ? html`<${Table} jobs=${data.jobs} looks=${looks} label="what was set">${data.config.map(({ key, differs, values }) => html`<tr key=${key} class=${differs ? "" : "same"}>
      <th scope="row"><${Text}>${key}<//></th>${cells(data.jobs.map((job) => settingText(values[job.id])), differs)}</tr>`)}<//>`
      : html`<div class="body"><${Empty}>no differences<//></div>`}<//>`;
}

/** Values that are the same have the same shade; the most frequent one has none. */
function cells(texts, differs) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  const order = [...counts].sort(([, one], [, other]) => other - one).map(([text]) => text);
  return texts.map((text) => html`<td class=${differs && counts.size < texts.length ? `shade${Math.min(5, order.indexOf(text))}` : ""} title=${printable(text)}><${Text}>${text}<//></td>`);
}

const figure = (value) => (typeof value === "number" ? short(value) : known(value) ? printable(value) : UNKNOWN);

export function Figures({ data, looks }) {
  if (!data.metrics.length) return null;
  return html`<${Panel} title="What it came to" note="the best of each metric has its step; the best job is bold" body=${false}>
    <${Table} jobs=${data.jobs} looks=${looks} label="metrics">${data.metrics.map(({ name, rises, values }) => {
      const best = rises === null ? "" : rises ? "max" : "min";
      const found = data.jobs.map((job) => values[job.id]?.[best]).filter((value) => typeof value === "number");
      const top = new Set(found).size > 1 ? (rises ? Math.max : Math.min)(...found) : null;
      return ["last", "min", "max"].map((statistic) => html`<tr key=${`${name} ${statistic}`} class=${statistic === "last" ? "first" : ""}>
        <th scope="row">${statistic === "last" && html`<${Text}>${name}<//> `}<span class="muted">${statistic}${statistic === best ? " (best)" : ""}</span></th>
        ${data.jobs.map((job) => {
          const of = values[job.id];
          const won = statistic === best && top !== null && of?.[best] === top;
          return html`<td class="number">${won ? html`<b class="won">${figure(of[statistic])}</b>` : figure(of?.[statistic])}${statistic === best && known(of?.[`${best}_step`]) && html`<span class="muted small"> at ${number(of[`${best}_step`])}</span>`}</td>`;
        })}</tr>`);
    })}<//><//>`;
}
