// What the GPUs do at this moment, who waits and why, and what has just changed.

import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { now } from "../api.js";
import { Changes } from "../changes.js";
import { ON_GPUS, useJobs } from "../joblist.js";
import { sure, useLiveness, useTick } from "../live.js";
import { GpuMap, useCluster } from "../map.js";
import { Empty, JobLink, Loaded, Panel, State, Text } from "../parts.js";
import { ago, count, known, number, span } from "../words.js";

const QUEUE_SHOWN = 50;

export default function Now() {
  useTick(5);
  useLiveness();
  const cluster = useCluster();
  const running = useJobs({ state: ON_GPUS }, 100);
  const queue = useQueue();
  return html`
    <div class="head"><h1>Now</h1>${cluster.data && html`<${Summary} gpus=${cluster.data.gpus}
      running=${running.total} waiting=${queue.total} />`}</div>
    <div class="columns ${sure() ? "" : "stale"}">
      <div>
        <${Panel} title="GPUs" note=${cluster.data && observed(cluster.data)}>
          <${Loaded} answer=${cluster}>${({ gpus }) => (gpus.length ? html`<${GpuMap} gpus=${gpus} />`
            : html`<${Empty}>no GPU has been seen yet<//>`)}<//>
        <//>
        <${Running} list=${running} />
      </div>
      <div>
        <${Queue} list=${queue} />
        <${Panel} title="What changed" note="newest first" body=${false}><${Changes} /><//>
      </div>
    </div>`;
}

/** Higher priorities first, then those that wait longer. */
export const byTurn = (one, other) => other.priority - one.priority || one.submitted_at - other.submitted_at;

/** The next ones: some are the oldest, others are more urgent. */
function useQueue() {
  const oldest = useJobs({ state: ["QUEUED"], order: "submitted", ascending: "true" }, QUEUE_SHOWN);
  const urgent = useJobs({ state: ["QUEUED"], order: "priority" }, QUEUE_SHOWN);
  const all = new Map([...urgent.jobs, ...oldest.jobs].map((job) => [job.id, job]));
  return { ...oldest, jobs: [...all.values()].sort(byTurn) };
}

const observed = ({ observed_at: at, policy }) => `${at ? `seen ${ago(at, now())}` : "not observed yet"}, policy ${policy}`;

function Summary({ gpus, running, waiting }) {
  const total = gpus.reduce((sum, gpu) => sum + gpu.capacity_mib, 0);
  const held = gpus.reduce((sum, gpu) => sum + gpu.reserved_mib, 0);
  const faulty = gpus.filter((gpu) => gpu.fault || gpu.lost || !gpu.ready).length;
  return html`<span class="muted">${count(gpus.length, "GPU")}${total > 0 && `, ${Math.round((100 * held) / total)}% of their memory granted`}
    ${sure() && ` · ${number(running)} running · ${number(waiting)} waiting`}${faulty > 0 && html` · <span class="fault">${count(faulty, "GPU")} with a fault</span>`}</span>`;
}

function Running({ list }) {
  return html`<${Panel} title=${sure() ? "Running" : "Was running"} note=${known(list.total) && count(list.total, "job")} body=${false}>
    ${list.jobs.length ? html`<div class="scroll"><table>
      <thead><tr><th>Job</th><th class="optional">User</th><th>State</th><th class="number">Epochs</th><th class="number">Left</th></tr></thead>
      <tbody>${list.jobs.slice(0, 30).map((job) => html`<tr key=${job.id}>
        <td><${JobLink} job=${job} /></td><td class="optional"><${Text}>${job.user}<//></td><td><${State} state=${job.state} /></td>
        <td class="number">${job.epochs_done}/${job.max_epochs}</td><td class="number">${span(job.eta_seconds)}</td></tr>`)}
      </tbody></table></div>` : html`<div class="body"><${Empty}>${list.loading ? "loading …" : "no job runs"}<//></div>`}
    ${list.total > 30 && html`<div class="body"><a href="/jobs?state=RUNNING">all ${number(list.total)}</a></div>`}
  <//>`;
}

function Queue({ list }) {
  return html`<${Panel} title=${sure() ? "Queue" : "Was in the queue"} body=${false}
      note=${list.total > 1 ? `${number(list.total)} jobs wait; by priority and age` : ""}>
    ${list.jobs.length ? html`<ol class="list">${list.jobs.slice(0, QUEUE_SHOWN).map((job, place) => html`<li key=${job.id}>
      <div class="line"><span class="place">${place + 1}</span><${JobLink} job=${job} />
        <span class="muted small"><${Text}>${job.user}<//></span>
        <span class="end muted small nowrap">${job.priority !== 1 ? `priority ${job.priority} · ` : ""}${ago(job.submitted_at, now())}</span></div>
      <div class="small muted"><${Text}>${job.preempted ? `preempted; ${job.reason}` : job.reason}<//></div>
    </li>`)}</ol>` : html`<div class="body"><${Empty}>${list.loading ? "loading …" : "no job waits"}<//></div>`}
    ${list.total > QUEUE_SHOWN && html`<div class="body"><a href="/jobs?state=QUEUED">all ${number(list.total)}</a></div>`}
  <//>`;
}
