// Workflows: all of them, or one with its graph. A workflow is nothing but its jobs.

import { html } from "../vendor/preact-htm.js";
import { now } from "../api.js";
import { DRAWN_MAX, Graph, WHEN, stepsOf, time } from "../graph.js";
import { useLive, useTick } from "../live.js";
import { Empty, JobLink, Loaded, Panel, State, Text } from "../parts.js";
import { ENDED, ago, count, printable, span } from "../words.js";
import { remark } from "./jobs.js";

const STEPS_MAX = 1000; // jobs that are listed
const OURS = "workflows.argoproj.io/";
const LISTED = "metadata,items.metadata,items.status.phase,items.status.progress";

export default ({ id }) => (id ? html`<${Workflow} id=${id} />` : html`<${Workflows} />`);

function Workflows() {
  useTick(5);
  const answer = useLive("/api/v1/workflows/", { fields: LISTED, "listOptions.limit": 200 }, (event) => event.list_again || event.jobs?.some((job) => job.labels["workflow-id"]));
  return html`<div class="head"><h1>Workflows</h1></div>
    <div class="panel"><${Loaded} answer=${answer}>${({ items }) => (items.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="the list of workflows"><table class="wide">
      <thead><tr><th>Name</th><th>User</th><th>Project</th><th>State</th><th class="number">Steps ended</th><th>Submitted</th><th>Took</th><th>Note</th></tr></thead>
      <tbody>${items.map(({ metadata, status }) => html`<tr key=${metadata.uid}>
        <td class="jobs"><a href="/workflows/${metadata.uid}"><${Text}>${metadata.name}<//></a></td>
        <td><${Text}>${metadata.labels[`${OURS}creator`]}<//></td>
        <td><${Text}>${metadata.namespace}<//></td>
        <td>${status.phase}</td><td class="number">${status.progress}</td>
        <td class="nowrap">${ago(Date.parse(status.startedAt) / 1000, now())}</td>
        <td class="nowrap">${status.finishedAt ? span((Date.parse(status.finishedAt) - Date.parse(status.startedAt)) / 1000) : ""}</td>
        <td><${Text}>${status.message}<//></td></tr>`)}</tbody></table></div>`
    : html`<div class="body"><${Empty}>no workflow yet: <code>scheduler-run-workflow FILE</code> submits one<//></div>`)}<//></div>`;
}

function Workflow({ id }) {
  useTick(5);
  const query = { all_users: "true", label: `workflow-id=${id}`, limit: STEPS_MAX };
  const answer = useLive("/api/v1/jobs", query, (event) => event.list_again || event.jobs?.some((job) => job.labels["workflow-id"] === id));
  return html`<${Loaded} answer=${answer}>${({ jobs, total }) => (jobs.length ? html`<${Steps} jobs=${jobs} total=${total} />`
    : html`<div class="head"><h1>Workflow</h1></div><div class="panel"><div class="body"><${Empty}>there is no such workflow<//></div></div>`)}<//>`;
}

function Steps({ jobs, total }) {
  const steps = stepsOf(jobs);
  const [{ labels, user }] = jobs;
  const counts = new Map();
  for (const { job } of steps) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
  const ended = steps.filter(({ job }) => ENDED.has(job.state)).length;
  return html`
    <div class="head"><h1><${Text}>${labels.workflow}<//></h1>
      <span class="muted">${count(steps.length, "step")} of <${Text}>${user}<//>, ${ended} ended</span>
      ${[...counts].map(([state, n]) => html`<span><${State} state=${state} />${n > 1 ? ` × ${n}` : ""}</span>`)}
      <div class="actions"><a class="button" href="/jobs?label=${encodeURIComponent(`workflow-id=${labels["workflow-id"]}`)}">As jobs</a></div></div>
    ${total > jobs.length && html`<p class="error" role="status">only the newest ${count(jobs.length, "job")} of ${total} are shown</p>`}
    <div class="stack">${steps.length <= DRAWN_MAX && html`<${Panel} title="Graph"><${Graph} steps=${steps} /><//>`}
      <${Panel} title="Steps" note="in the order in which they can run" body=${false}><${List} steps=${steps} /><//></div>`;
}

const List = ({ steps }) => html`<div class="scroll" tabindex="0" role="region" aria-label="the list of steps"><table class="wide">
  <thead><tr><th>Step</th><th>State</th><th class="number">Epochs</th><th>Took</th><th>After</th><th>Note</th></tr></thead>
  <tbody>${steps.map(({ name, job, before }) => html`<tr key=${name}>
    <td class="jobs"><${JobLink} job=${{ ...job, name }} /></td><td><${State} state=${job.state} /></td>
    <td class="number">${job.epochs_done}/${job.max_epochs}</td><td class="nowrap">${ENDED.has(job.state) ? time(job) : ""}</td>
    <td><${Text}>${before.map((each) => printable(each.name) + (WHEN[each.when] ? ` (${WHEN[each.when]})` : "")).join(", ")}<//></td>
    <td><${Text}>${job.state === "FINISHED" ? "" : remark(job)}<//></td></tr>`)}</tbody></table></div>`;
