// What can be done to jobs: each asks once, says what will happen, and reports the answer.

import { html, useRef, useState } from "./vendor/preact-htm.js";
import { send } from "./api.js";
import { Question, Text, jobPath } from "./parts.js";
import { count, known, live, printable, shortId, span } from "./words.js";

const api = (job, verb = "") => `/api/v1/jobs/${encodeURIComponent(job.id)}${verb}`;
const title = (job) => `${printable(job.name)} (${shortId(job.id)})`;

/** About how long its epoch goes on, or null. */
export function epochLeft(job) {
  if (!known(job.eta_seconds) || !job.epoch_seconds) return null;
  const later = (job.max_epochs - job.epochs_done - 1) * job.epoch_seconds;
  return Math.min(job.epoch_seconds, Math.max(0, job.eta_seconds - later));
}

/** `after epoch 4, about 3 min`. */
export function epochEnd(job) {
  const left = epochLeft(job);
  return `after epoch ${job.epochs_done + 1}${left ? `, in about ${span(left)}` : ""}`;
}

const onGpus = (job) => job.shares.length > 0 || ["STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE"]
  .includes(job.state);

/** Whether it is to wait until it is released. Its options only say what was submitted. */
const isHeld = (job) => job.story?.findLast(({ kind }) => kind === "job_updated")?.data.held ?? job.spec.held;

/** The buttons of a job's page. What they may do is decided by the scheduler. */
export function JobActions({ job, changed }) {
  const [asked, ask] = useState(null);
  const close = () => {
    ask(null);
    changed();
  };
  const held = isHeld(job);
  return html`
    ${live(job) && html`
      <button onClick=${() => ask("hold")}>${held ? "Release" : "Hold"}</button>
      <button onClick=${() => ask("change")}>Change</button>
      <button class="danger" onClick=${() => ask("cancel")}>Cancel</button>`}
    <button onClick=${() => ask("resubmit")}>Resubmit</button>
    ${asked === "cancel" && html`<${Cancel} jobs=${[job]} close=${close} />`}
    ${asked === "hold" && html`<${Hold} job=${job} close=${close} />`}
    ${asked === "change" && html`<${Change} job=${job} close=${close} />`}
    ${asked === "resubmit" && html`<${Resubmit} job=${job} close=${close} />`}`;
}

export function Cancel({ jobs, close }) {
  const alive = jobs.filter(live);
  const running = alive.filter(onGpus);
  const act = async ({ when }) => {
    const [told, refused] = [[], []];
    for (const job of alive) {
      try {
        told.push((await send(api(job, "/cancel"), { graceful: when === "epoch" })).text);
      } catch (error) {
        refused.push(alive.length === 1 ? error.message : `${title(job)}: ${error.message}`);
      }
    }
    if (refused.length) throw Object.assign(new Error(), { lines: [...refused, ...told] });
    return told;
  };
  const what = alive.length === 1 ? `Cancel ${title(alive[0])}?` : `Cancel ${count(alive.length, "job")}?`;
  return html`<${Question} title=${what} verb=${alive.length === 1 ? "Cancel the job" : `Cancel ${alive.length} jobs`}
      danger act=${act} close=${close}>
    ${alive.length > 1 && html`<ul>${alive.map((job) => html`<li><${Text}>${title(job)}<//>
      <span class="muted"> ${job.state}</span></li>`)}</ul>`}
    ${alive.length > running.length && html`<p>${waitingText(alive.length - running.length, alive)}</p>`}
    ${running.length > 0 && html`<fieldset><legend class="unseen">When</legend>
      <label class="choice"><input type="radio" name="when" value="epoch" defaultChecked
        /><span>At the end of its epoch<br /><span class="muted small">${gracefulText(running)}</span></span></label>
      <label class="choice"><input type="radio" name="when" value="now"
        /><span>Now<br /><span class="muted small">${promptText(running)}</span></span></label>
    </fieldset>`}
    <p class="muted small">What was saved stays where it is, and so does the log.</p>
  <//>`;
}

const waitingText = (waiting, all) => (all.length === 1 ? "It leaves the queue at once."
  : `${count(waiting, "waiting job")} ${waiting === 1 ? "leaves" : "leave"} the queue at once.`);

const gracefulText = (running) => (running.length === 1
  ? `It stops ${epochEnd(running[0])}; nothing is lost.`
  : "Each stops when its epoch has ended; nothing is lost.");

function promptText(running) {
  if (running.length > 1) return "Each stops at once; what it did since its last epoch is lost.";
  const [job] = running;
  const left = epochLeft(job);
  const lost = left === null || job.epoch_seconds - left < 1 ? "" : `: about ${span(job.epoch_seconds - left)}`;
  return `It stops at once; what it did since epoch ${job.epochs_done} is lost${lost}.`;
}

function Hold({ job, close }) {
  const held = isHeld(job);
  const act = async () => (await send(api(job), { held: !held }, "PATCH")).text;
  return html`<${Question} title=${`${held ? "Release" : "Hold"} ${title(job)}?`} act=${act} close=${close}
      verb=${held ? "Release it" : "Hold it"}>
    <p>${held ? "It may start again as soon as its turn comes."
      : onGpus(job) ? `It stops ${epochEnd(job)}; nothing is lost. It waits until it is released.`
        : "It does not start until it is released."}</p>
  <//>`;
}

function Change({ job, close }) {
  const act = async ({ priority, epochs }) => {
    const changes = {};
    if (Number(priority) !== job.priority) changes.priority = Number(priority);
    if (Number(epochs) !== job.max_epochs) changes.max_epochs = Number(epochs);
    if (!Object.keys(changes).length) throw new Error("nothing to change");
    return (await send(api(job), changes, "PATCH")).text;
  };
  return html`<${Question} title=${`Change ${title(job)}`} verb="Change it" act=${act} close=${close}>
    <fieldset>
      <label class="field">Priority: jobs with a higher one go first
        <input name="priority" type="number" required defaultValue=${job.priority} /></label>
      <label class="field">Epochs in total
        <input name="epochs" type="number" min=${Math.max(1, job.epochs_done)} required
          defaultValue=${job.max_epochs} /></label>
    </fieldset>
  <//>`;
}

function Resubmit({ job, close }) {
  const id = useRef(crypto.randomUUID?.() ?? ""); // the same request again is the same job
  const act = async (secrets) => {
    const { job: made, notes } = await send(api(job, "/resubmit"), { id: id.current, secrets });
    return [html`<a href=${jobPath(made.id)}>${title(made)}</a>: submitted`, ...notes];
  };
  const secret = (name) => html`<label class="field"><${Text}>${name}<//>
    <input name=${name} type="password" autocomplete="off" required /></label>`;
  return html`<${Question} title=${`Submit ${title(job)} again?`} verb="Submit" act=${act} close=${close}>
    <p>A new job with the same options goes into the queue. This one stays as it is.</p>
    ${job.spec.secrets.length > 0 && html`<fieldset><legend class="small muted">Its secrets are not kept for that:</legend>
      ${job.spec.secrets.map(secret)}</fieldset>`}
  <//>`;
}
