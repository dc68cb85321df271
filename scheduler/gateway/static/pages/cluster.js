// The machines: their GPUs, what happened to them, and whether everything that watches them is well.

import { html } from "../vendor/preact-htm.js";
import { now } from "../api.js";
import { Changes } from "../changes.js";
import { sure, useLiveness, useTick } from "../live.js";
import { GpuMap, trouble, useCluster } from "../map.js";
import { Empty, Facts, JobLink, Loaded, Panel, Text } from "../parts.js";
import { UNKNOWN, ago, count, number, percent, printable } from "../words.js";

const ENFORCERS = {
  library: "by the client library alone",
  watchdog: "by the watchdog: a job that uses more is stopped",
  driver: "by the driver: no job can get more",
};

export default function Cluster() {
  useTick(5);
  const answer = useCluster();
  return html`<div class="head"><h1>Cluster</h1></div>
    <${Loaded} answer=${answer}>${(cluster) => html`<div class="stack">
      <div class="columns">
        <${Panel} title="Health"><${Health} cluster=${cluster} /><//>
        <${Panel} title="Events" note="of nodes and GPUs" body=${false}><${Changes} limit=${12} about=${(fact) => !fact.job_id} /><//>
      </div>
      <${Panel} title="GPUs" note=${count(cluster.gpus.length, "GPU")}>
        ${cluster.gpus.length ? html`<${GpuMap} gpus=${cluster.gpus} />` : html`<${Empty}>no GPU has been seen yet<//>`}<//>
      <${Panel} title="Each GPU" body=${false}><${Table} gpus=${cluster.gpus} /><//>
    </div>`}<//>`;
}

function Health({ cluster }) {
  useLiveness();
  const { gpus } = cluster;
  const nodes = new Map(gpus.map((gpu) => [gpu.node, gpu.ready]));
  const down = [...nodes].filter(([, ready]) => !ready).map(([node]) => node);
  const faulty = gpus.filter(trouble);
  const keeps = new Set(gpus.map((gpu) => gpu.keeps).filter(Boolean));
  return html`<${Facts} pairs=${[
    { name: "daemon", text: `${sure() ? "answers" : "away"}, version ${cluster.version || UNKNOWN}` },
    { name: "policy", text: cluster.policy },
    { name: "seen", text: cluster.observed_at ? `the whole cluster, ${ago(cluster.observed_at, now())}` : "not yet" },
    { name: "nodes", text: `${count(nodes.size, "node")}${down.length ? `; not ready: ${down.join(", ")}` : ", all ready"}` },
    { name: "GPUs", text: faulty.length ? `${count(faulty.length, "GPU")} with a fault` : "no fault is known" },
    ...[...keeps].map((each) => ({ name: "memory limits", text: `enforced ${ENFORCERS[each] ?? each}` })),
  ]} />`;
}

const Table = ({ gpus }) => html`<div class="scroll"><table>
  <thead><tr><th>Node</th><th>GPU</th><th>Type</th><th class="number">Granted</th><th class="number">For jobs</th>
    <th class="number">Used</th><th class="number">Busy</th><th>Jobs</th><th>Fault</th></tr></thead>
  <tbody>${gpus.map((gpu) => html`<tr key=${`${gpu.node} ${gpu.gpu}`}>
    <td class="nowrap"><${Text}>${gpu.node}<//></td><td class="nowrap" title=${printable(gpu.gpu)}>gpu${gpu.index}</td><td class="nowrap"><${Text}>${gpu.type}<//></td>
    <td class="number">${number(gpu.reserved_mib)}</td><td class="number">${number(gpu.capacity_mib)}</td>
    <td class="number">${number(gpu.used_mib)}</td><td class="number">${percent(gpu.busy)}</td>
    <td>${gpu.jobs.map((job, i) => html`${i > 0 && ", "}<${JobLink} job=${job} />`)}</td>
    <td class="fault"><${Text}>${trouble(gpu)}<//></td></tr>`)}</tbody>
</table></div>`;
