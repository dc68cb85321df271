// All jobs: which ones is part of the address, so it can be copied.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { Cancel } from "../actions.js";
import { address, now } from "../api.js";
import { STATES, useJobs } from "../joblist.js";
import { useTick } from "../live.js";
import { Empty, JobLink, State, Text } from "../parts.js";
import { go } from "../router.js";
import { useVisible } from "../rows.js";
import { ago, count, known, live, number, printable, shortId, span } from "../words.js";

const PAGE = 100;
const COMPARED_MAX = 100;
const TYPING_MS = 250;
const FIELDS = [["user", "User"], ["project", "Project"], ["experiment", "Experiment"], ["label", "Label", "key=value"]];
const COLUMNS = [
  ["id", "ID"], ["name", "Name", "name"], ["user", "User", "user"], ["state", "State", "state"],
  ["epochs", "Epochs"], ["gpus", "GPUs"], ["time", "Submitted", "submitted"], ["note", "Note"],
];

export default function Jobs({ query }) {
  const list = useJobs(asked(query), PAGE);
  const [chosen, choose] = useState(() => new Set());
  const [cancelling, setCancelling] = useState(null);
  const change = (changes) => {
    const next = { ...query, ...changes };
    const given = Object.entries(next).filter(([, value]) => value);
    go(given.length ? `/jobs?${new URLSearchParams(given)}` : "/jobs", true);
  };
  const shown = list.jobs.filter((job) => chosen.has(job.id));
  return html`
    <div class="head"><h1>Jobs</h1>
      <span class="muted" role="status">${known(list.total) && count(list.total, "job")}</span>
      <div class="actions">
        ${chosen.size > 0 && html`<span class="muted">${chosen.size} chosen</span>
          <button onClick=${() => choose(new Set())}>None</button>`}
        ${shown.length > 1 && shown.length <= COMPARED_MAX && html`<button onClick=${() => go(address("/compare", { job: shown.map((job) => job.id) }))}>Compare</button>`}
        <button class="danger" disabled=${!shown.some(live)} onClick=${() => setCancelling(shown)}>Cancel …</button>
      </div>
    </div>
    <${Filters} query=${query} change=${change} />
    ${list.error && html`<p class="error" role="alert">${printable(list.error.message)}</p>`}
    <div class="panel">
      ${list.jobs.length || list.loading ? html`<${Rows} list=${list} query=${query} change=${change} chosen=${chosen} choose=${choose} />`
        : html`<div class="body"><${Empty}>no job matches<//></div>`}
    </div>
    ${cancelling && html`<${Cancel} jobs=${cancelling} close=${() => {
      setCancelling(null);
      choose(new Set());
    }} />`}`;
}

const asked = ({ sort = "", ...query }) => ({
  state: query.state ? query.state.split(",") : [],
  user: query.user,
  project: query.project,
  experiment: query.experiment,
  label: query.label,
  search: query.search,
  order: sort.replace(/^-/, ""),
  ascending: sort && !sort.startsWith("-") ? "true" : "",
});

function Filters({ query, change }) {
  const [typed, type] = useState(query);
  const timer = useRef();
  useEffect(() => type(query), [JSON.stringify(query)]);
  const input = (name) => (event) => {
    const { value } = event.target;
    type((before) => ({ ...before, [name]: value }));
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ [name]: value.trim() }), TYPING_MS);
  };
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="wide">Search<input type="search" value=${typed.search ?? ""} onInput=${input("search")}
      placeholder="name, user, project, experiment or id" /></label>
    <label>State<select value=${query.state ?? ""} onChange=${(event) => change({ state: event.target.value })}>
      <option value="">all</option>
      <option value="HELD,QUEUED,STARTING,RUNNING,STOPPING,UNRESPONSIVE">not ended</option>
      ${STATES.map((state) => html`<option value=${state}>${state}</option>`)}</select></label>
    ${FIELDS.map(([name, label, hint]) => html`<label>${label}<input size="11" value=${typed[name] ?? ""}
      onInput=${input(name)} placeholder=${hint ?? "any"} /></label>`)}
  </form>`;
}

/** Only the visible rows are in the document. */
function Rows({ list, query, change, chosen, choose }) {
  const box = useRef();
  useTick(5);
  const [first, last, row, onScroll] = useVisible(box, list.total ?? 0);
  const missing = last > list.jobs.length && list.cursor;
  useEffect(() => {
    if (missing) list.more();
  }, [missing, list.jobs.length]);
  const pick = (job, on) => choose((before) => {
    const after = new Set(before);
    after[on ? "add" : "delete"](job.id);
    return after;
  });
  const rows = list.jobs.slice(first, last);
  const all = list.jobs.length > 0 && list.jobs.every((job) => chosen.has(job.id));
  return html`<div class="rows" ref=${box} tabindex="0" role="region" aria-label="the list of jobs"
      onScroll=${onScroll}>
    <table aria-rowcount=${(list.total ?? 0) + 1}>
      <thead><tr aria-rowindex="1">
        <th class="w-check"><input type="checkbox" aria-label="choose all loaded jobs" checked=${all}
          onChange=${(event) => choose(new Set(event.target.checked ? list.jobs.map((job) => job.id) : []))} /></th>
        ${COLUMNS.map((column) => html`<${Heading} column=${column} query=${query} change=${change} />`)}
      </tr></thead>
      <tbody>
        <tr class="space" aria-hidden="true"><td colspan="9" style=${{ height: `${first * row}px` }} /></tr>
        ${rows.map((job, index) => html`<${Row} key=${job.id} job=${job} at=${first + index + 2}
          chosen=${chosen.has(job.id)} pick=${pick} />`)}
        <tr class="space" aria-hidden="true"><td colspan="9"
          style=${{ height: `${Math.max(0, (list.total ?? 0) - first - rows.length) * row}px` }} /></tr>
      </tbody>
    </table>
  </div>`;
}

function Heading({ column: [name, label, order], query, change }) {
  const sort = query.sort || "-submitted";
  const [active, down] = [sort.replace(/^-/, "") === order, sort.startsWith("-")];
  const number = name === "epochs" || name === "gpus" ? "number" : "";
  if (!order) return html`<th class="w-${name} ${number}">${label}</th>`;
  const next = active && !down ? `-${order}` : active ? order : order === "submitted" ? "-submitted" : order;
  return html`<th class="w-${name}" aria-sort=${active ? (down ? "descending" : "ascending") : undefined}>
    <button onClick=${() => change({ sort: next })}>${label}${active ? (down ? " ↓" : " ↑") : ""}</button></th>`;
}

const Row = ({ job, at, chosen, pick }) => html`<tr class="job ${chosen ? "chosen" : ""}" aria-rowindex=${at}>
  <td class="c-check"><input type="checkbox" checked=${chosen} aria-label="choose ${printable(job.name)}"
    onChange=${(event) => pick(job, event.target.checked)} /></td>
  <td class="c-id"><code>${shortId(job.id)}</code></td>
  <td class="c-name"><${JobLink} job=${job} /></td>
  <td class="c-user"><${Text}>${job.user}<//></td>
  <td class="c-state"><${State} state=${job.state} /></td>
  <td class="c-epochs number">${number(job.epochs_done)}/${number(job.max_epochs)}</td>
  <td class="c-gpus number">${job.shares.length || "–"}</td>
  <td class="c-time">${ago(job.submitted_at, now())}</td>
  <td class="c-note" title=${printable(remark(job))}><${Text}>${remark(job)}<//></td>
</tr>`;

/** As in the list of `scheduler-state`: why it waits, how much longer it runs, or how it ended. */
export function remark(job) {
  if (job.state === "FINISHED" && ["", "finished"].includes(job.reason) && job.started_at) {
    return `took ${span(job.ended_at - job.started_at)}`;
  }
  if (job.reason) return job.preempted ? `preempted; ${job.reason}` : job.reason;
  return known(job.eta_seconds) ? `${span(job.eta_seconds)} left` : "";
}
