// One job: its story, why it waits and what would change that, how fast it is, its log.

import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { JobActions } from "../actions.js";
import { Annotations, Star } from "../annotations.js";
import { now } from "../api.js";
import { Dots } from "../chart.js";
import { JobMetrics } from "../jobmetrics.js";
import { sure, useLive, useTick } from "../live.js";
import { LogView } from "../logview.js";
import { Empty, Facts, Loaded, Panel, State, Text, jobPath } from "../parts.js";
import { Timeline } from "../timeline.js";
import { WAITING, clock, known, live, number, printable, span } from "../words.js";

const AGING_MS = 10000;

export default function Job({ id }) {
  useTick(5);
  const touches = (event) => event.list_again
    || event.jobs?.some((job) => job.id === id) || event.facts?.some((fact) => fact.job_id === id);
  const answer = useLive(jobPath(id).replace("/jobs", "/api/v1/jobs"), null, touches);
  const alive = answer.data && live(answer.data.job);
  useEffect(() => {
    // Its texts say "3 min ago": that changes even if nothing happens.
    const timer = setInterval(() => alive && sure() && !document.hidden && answer.reload(), AGING_MS);
    return () => clearInterval(timer);
  }, [alive]);
  return html`<${Loaded} answer=${answer}>${(reply) => html`<${Whole} reply=${reply} reload=${answer.reload} />`}<//>`;
}

function Whole({ reply, reload }) {
  const { job, text } = reply;
  const [failure, fail] = useState("");
  return html`
    ${failure && html`<p class="error" role="alert">${printable(failure)}</p>`}
    <div class="head"><h1><${Text}>${job.name}<//></h1><${Star} id=${job.id} name=${job.name} starred=${job.annotations?.star === "yes"} failed=${fail} /><${State} state=${job.state} />
      ${job.labels["workflow-id"] && html`<a href="/workflows/${encodeURIComponent(job.labels["workflow-id"])}">workflow <${Text}>${job.labels.workflow}<//></a>`}
      <div class="actions"><${JobActions} job=${job} changed=${reload} /></div></div>
    <div class="columns">
      <div>
        <${Panel} title=${WAITING.has(job.state) ? "Why it waits" : !live(job) ? "How it ended" : sure() ? "What it does" : "What it did"}>
          <${Progress} job=${job} /><${Facts} pairs=${text.fields} /><//>
        <${JobMetrics} job=${job} />
        <${Panel} title="Attempts" note="with the epochs of each, and who trained beside it">
          <${Timeline} job=${job} story=${job.story} learned=${job.learned} /><//>
        <${Panel} title="Log" end=${html`<a href="${jobPath(job.id)}/log">open the whole log</a>`} body=${false}>
          <${LogView} job=${job} short /><//>
      </div>
      <div>
        ${job.annotations && html`<${Annotations} job=${job} changed=${reload} />`}
        <${Panel} title="Story" note="newest first" body=${false}><${Story} story=${text.story} /><//>
        <${Learned} learned=${job.learned ?? {}} fields=${text.learned} />
        <${Panel} title="Options" note="of the submission"><${Facts} pairs=${text.options} /><//>
      </div>
    </div>`;
}

function Progress({ job }) {
  const part = job.max_epochs ? Math.min(1, job.epochs_done / job.max_epochs) : 0;
  return html`<div class="progress" role="progressbar" aria-label="epochs done" aria-valuemin="0"
    aria-valuemax=${job.max_epochs} aria-valuenow=${job.epochs_done}><i style=${{ width: `${100 * part}%` }} /></div>`;
}

function Story({ story }) {
  const [all, setAll] = useState(false);
  const told = [...story].reverse();
  const shown = all ? told : told.slice(0, 30);
  return html`<ol class="list changes">${shown.map((fact) => html`<li><time>${clock(fact.at, now())}</time><span><${Text}>${fact.text}<//></span></li>`)}</ol>
    ${shown.length < told.length && html`<div class="body"><button class="plain" onClick=${() => setAll(true)}
      >show all ${number(told.length)}</button></div>`}`;
}

// --- what was learned ---------------------------------------------------------------------------

function Learned({ learned, fields }) {
  const speeds = learned.epoch_seconds ?? [];
  return html`<${Panel} title="Learned" note="how fast it is, and what it needs">
    ${speeds.length > 1 && html`<${Speeds} speeds=${speeds} />`}
    ${fields.length ? html`<${Facts} pairs=${fields} />` : html`<${Empty}>nothing yet<//>`}
  <//>`;
}

/** How long an epoch takes on each placement that was measured or predicted. */
function Speeds({ speeds }) {
  const told = (each) => (known(each.measured) ? `${span(each.measured)}, measured`
    : known(each.predicted) ? `${span(each.predicted)}, predicted` : "not known");
  return html`<${Dots} format=${span} points=${speeds.map((each) => ({
    label: printable(each.gpus),
    value: each.measured ?? each.predicted,
    doubt: known(each.measured) ? 0 : (each.doubt ?? 0) * each.predicted,
    hollow: !known(each.measured),
    text: `an epoch on ${printable(each.gpus)}: ${told(each)}`,
  }))} />
  <p class="small muted">seconds of an epoch: ● measured, ○ predicted</p>`;
}
