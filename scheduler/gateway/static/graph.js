// The steps of a workflow as a graph: each below all that it waits for.

import { html } from "./vendor/preact-htm.js";
import { State, Text, jobPath } from "./parts.js";
import { live, number, printable, span } from "./words.js";

export const DRAWN_MAX = 60; // steps; more are a list
const [WIDTH, HEIGHT, BESIDE, BELOW] = [176, 58, 16, 38];
export const WHEN = { failed: "if it fails", finished: "also if it fails", "skipped-or-succeeded": "also if it is skipped" };

/** The steps in the order in which they can run: `{name, job, before: [{name, when}], depth}`. Of
 * several jobs of a step the newest counts; `jobs` are newest first. Pure. */
export function stepsOf(jobs) {
  const [nameOf, newest] = [new Map(), new Map()];
  for (const job of jobs) {
    const name = job.labels.step ?? job.name;
    nameOf.set(job.id, name);
    if (!newest.has(name)) newest.set(name, job);
  }
  const steps = new Map([...newest].reverse().map(([name, job]) => [name, { name, job, depth: 0, before: (job.spec?.after ?? [])
    .map(({ job: id, when }) => ({ name: nameOf.get(id), when })).filter((each) => newest.has(each.name) && each.name !== name) }]));
  const [ordered, left] = [new Map(), [...steps.keys()].reverse()];
  while (left.length) { // a path may be too long to call itself
    const step = steps.get(left.at(-1));
    const missing = step.before.filter((each) => !ordered.has(each.name));
    if (missing.length && !step.seen) {
      step.seen = true;
      left.push(...missing.map((each) => each.name).reverse());
      continue;
    }
    left.pop();
    if (ordered.has(step.name)) continue;
    step.depth = Math.max(0, ...step.before.map((each) => (ordered.get(each.name)?.depth ?? 0) + 1));
    ordered.set(step.name, step);
  }
  return [...ordered.values()];
}

/** Where each step is: rows by depth, each step near the middle of those before it. Pure. */
export function placed(steps) {
  const rows = [];
  for (const step of steps) (rows[step.depth] ??= []).push(step);
  const width = Math.max(1, ...rows.map((row) => row.length)) * (WIDTH + BESIDE) - BESIDE;
  const at = new Map();
  rows.forEach((row, depth) => {
    const middle = (step) => step.before.reduce((sum, { name }) => sum + at.get(name).x, 0) / step.before.length;
    const wanted = new Map(row.map((step, index) => [step, step.before.length ? middle(step) : index]));
    row.sort((a, b) => wanted.get(a) - wanted.get(b));
    const first = (width - row.length * (WIDTH + BESIDE) + BESIDE) / 2;
    row.forEach((step, index) => at.set(step.name, { x: first + index * (WIDTH + BESIDE), y: depth * (HEIGHT + BELOW) }));
  });
  return { at, width, height: rows.length * (HEIGHT + BELOW) - BELOW };
}

/** How long it took, or how far it is. */
export function time(job) {
  if (job.started_at && job.ended_at) return span(job.ended_at - job.started_at);
  if (!live(job) || !job.started_at) return "";
  const left = job.eta_seconds ? `, ${span(job.eta_seconds)} left` : "";
  return `${number(job.epochs_done)}/${number(job.max_epochs)}${left}`;
}

const spoken = ({ name, job, before }) => {
  const after = before.map((each) => `${each.name}${WHEN[each.when] ? ` (${WHEN[each.when]})` : ""}`).join(", ");
  return printable(`${name}: ${job.state}${after ? `, after ${after}` : ""}${job.reason ? `. ${job.reason}` : ""}`);
};

export function Graph({ steps }) {
  const { at, width, height } = placed(steps);
  const kinds = [...new Set(steps.flatMap((step) => step.before.map((each) => each.when)))].filter((when) => WHEN[when]);
  return html`
    <div class="graph" role="region" aria-label="the graph of its steps" tabindex="0">
      <div class="sheet" style=${{ width: `${width}px`, height: `${height}px` }}>
        <svg width=${width} height=${height} aria-hidden="true">${steps.flatMap((step) => step.before.map((each) => html`
          <path class="edge ${each.when}" d=${curve(at.get(each.name), at.get(step.name))} />`))}</svg>
        <ol>${steps.map((step) => html`<li key=${step.name} style=${{ left: `${at.get(step.name).x}px`, top: `${at.get(step.name).y}px` }}>
          <a class="step ${step.job.state}" href=${jobPath(step.job.id)} title=${spoken(step)} aria-label=${spoken(step)}>
            <b><${Text}>${step.name}<//></b>
            <span><${State} state=${step.job.state} /> <small>${time(step.job)}</small></span></a></li>`)}</ol>
      </div>
    </div>
    ${kinds.length > 0 && html`<p class="small muted edges">${kinds.map((when) => html`<span><svg width="34" height="8" aria-hidden="true"
      ><path class="edge ${when}" d="M1 4H33" /></svg> ${WHEN[when]}</span>`)}</p>`}`;
}

function curve(from, to) {
  const [x, y, right, low] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y];
  const bend = Math.min(BELOW, (low - y) / 2);
  return `M${x} ${y}C${x} ${y + bend} ${right} ${low - bend} ${right} ${low}`;
}
