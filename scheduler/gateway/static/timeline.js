// The attempts of a job along time, each with its epochs; below them, who trained beside it.

import { html } from "./vendor/preact-htm.js";
import { get, now } from "./api.js";
import { useWidth } from "./chart.js";
import { sure, useLoaded } from "./live.js";
import { Empty } from "./parts.js";
import { clock, live, printable, span } from "./words.js";

const LEFT = 82, ROW = 30, TOP = 8;
const BESIDE_MAX = 4;
const ATTEMPTS_MAX = 12;
const never = () => false;

/** The runs in a story: `{attempt, from, to, gpus, before, done, reason, lost}`. */
export function runs(story, until) {
  const found = new Map();
  for (const { at, kind, attempt, data } of story) {
    if (kind === "run_started") {
      found.set(attempt, { attempt, from: at, to: until, open: true, gpus: data.gpus, before: data.epochs_done });
    } else if (kind === "run_ended" && found.has(attempt)) {
      Object.assign(found.get(attempt), { to: at, open: false, done: data.epochs_done, reason: data.reason, lost: data.lost_work_seconds });
    }
  }
  return [...found.values()];
}

/** When others had a part of the same GPU at the same time. */
export function together(mine, theirs) {
  const gpus = (run) => new Set(String(run.gpus).split(/[,\s]+/).filter(Boolean));
  return mine.flatMap((run) => theirs.flatMap((other) => {
    const [from, to] = [Math.max(run.from, other.from), Math.min(run.to, other.to)];
    const shared = [...gpus(run)].some((gpu) => gpu !== "none" && gpus(other).has(gpu));
    return shared && from < to ? [{ from, to }] : [];
  }));
}

export function Timeline({ job, story, learned }) {
  const until = job.ended_at ?? (sure() ? now() : job.heard_at ?? now());
  const mine = runs(story, until);
  const others = [...new Map((learned?.beside ?? []).flatMap((each) => each.jobs)
    .map((other) => [other.id, other])).values()].slice(0, BESIDE_MAX);
  const beside = useLoaded(async () => Promise.all(others.map(async (other) => {
    const { job: found } = await get(`/api/v1/jobs/${other.id}`);
    return { name: found.name, runs: runs(found.story, found.ended_at ?? Infinity) };
  })), [others.map((other) => other.id).join(), mine.length], never);
  if (!mine.length) return html`<${Empty}>it has not run yet<//>`;
  const shown = mine.slice(-ATTEMPTS_MAX);
  const from = shown[0] === mine[0] ? job.submitted_at : shown[0].from;
  const neighbours = (beside.data ?? []).map(({ name, runs: its }) => ({ name, spans: together(mine, its) }))
    .filter(({ spans }) => spans.length);
  return html`<${Drawing} job=${job} runs=${shown} neighbours=${neighbours} from=${from} until=${until} />
    ${mine.length > shown.length && html`<p class="muted small">the last ${shown.length} of ${mine.length} attempts</p>`}`;
}

function Drawing({ job, runs: mine, neighbours, from, until }) {
  const [box, width] = useWidth();
  const length = Math.max(until - from, 1);
  const x = (at) => LEFT + ((Math.min(Math.max(at, from), until) - from) / length) * (width - LEFT - 4);
  const height = TOP + ROW * (mine.length + neighbours.length) + 24;
  const waits = mine.map((run, i) => [i ? mine[i - 1].to : from, run.from]);
  if (live(job) && !mine.at(-1).open) waits.push([mine.at(-1).to, until]);
  const marks = width > 560 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
  return html`<div class="timeline" ref=${box}><svg class="drawn" width=${width} height=${height} role="img" aria-label=${spoken(mine)}>
    ${marks.map((part) => html`
      <line class="axis" x1=${x(from + part * length)} x2=${x(from + part * length)} y1=${TOP} y2=${height - 18} />
      <text x=${x(from + part * length)} y=${height - 5}
        text-anchor=${part === 0 ? "start" : part === 1 ? "end" : "middle"}>${clock(from + part * length, now())}</text>`)}
    ${waits.map(([begin, end], i) => x(end) - x(begin) > 1 && html`
      <rect class="wait" x=${x(begin)} width=${x(end) - x(begin)} y=${TOP + ROW * Math.min(i, mine.length - 1) + 9} height="8" rx="2">
        <title>waited ${span(end - begin)}</title></rect>`)}
    ${mine.map((run, i) => html`<g key=${run.attempt}>
      <text class="label" x="0" y=${TOP + ROW * i + 18}>attempt ${run.attempt}</text>
      <rect class="run ${run.lost ? "bad" : ""}" x=${x(run.from)} width=${Math.max(2, x(run.to) - x(run.from))}
        y=${TOP + ROW * i + 3} height="20" rx="3"><title>${told(run, job)}</title></rect>
      <${Inside} x=${x(run.from)} width=${x(run.to) - x(run.from)} y=${TOP + ROW * i + 17} text=${epochs(run, job)} right=${x(until)} />
    </g>`)}
    ${neighbours.map(({ name, spans }, i) => html`<g key=${name}>
      <text x="0" y=${TOP + ROW * (mine.length + i) + 18}>${clipped(name)}</text>
      ${spans.map((each) => html`<rect class="beside" x=${x(each.from)} width=${Math.max(2, x(each.to) - x(each.from))}
        y=${TOP + ROW * (mine.length + i) + 7} height="12" rx="3"
        ><title>beside ${printable(name)} for ${span(Math.min(each.to, until) - each.from)}</title></rect>`)}
    </g>`)}
  </svg></div>`;
}

const clipped = (name) => (name.length > 14 ? `${printable(name).slice(0, 13)}…` : printable(name));

/** A label inside its bar, or beside it where the bar is too small. */
function Inside({ x, width, y, text, right }) {
  const needed = text.length * 6.4 + 10;
  if (width >= needed) return html`<text class="label" x=${x + 6} y=${y}>${text}</text>`;
  const after = x + width + 4;
  return after + needed < right + 8 ? html`<text x=${after} y=${y}>${text}</text>`
    : html`<text x=${x - 4} y=${y} text-anchor="end">${text}</text>`;
}

function epochs(run, job) {
  const done = run.done ?? job.epochs_done;
  if (done <= run.before) return run.open ? "" : "no epoch";
  return done === run.before + 1 ? `epoch ${done}` : `epochs ${run.before + 1}–${done}`;
}

const told = (run, job) => printable(`attempt ${run.attempt} on ${run.gpus}, ${span(run.to - run.from)}, ${epochs(run, job)}`
  + `${run.reason ? `: ${run.reason}` : ""}${run.lost ? `; ${span(run.lost)} of work lost` : ""}`);

const spoken = (mine) => mine.map((run) => `attempt ${run.attempt} ran for ${span(run.to - run.from)}`
  + `${run.reason ? `, ${printable(run.reason)}` : ""}`).join("; ");
