// The machines: their GPUs, what happened to them, and whether everything that watches them is well.

import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { now } from "../api.js";
import { Changes } from "../changes.js";
import { Lines } from "../chart.js";
import { sure, useLive, useLiveness, useTick } from "../live.js";
import { GpuMap, trouble, useCluster } from "../map.js";
import { Empty, Facts, JobLink, Loaded, Panel, Text } from "../parts.js";
import { UNKNOWN, ago, clock, count, fixed, known, number, percent, printable, span } from "../words.js";

const SILENT = 60; // seconds: agents report every few
const GIB = 2 ** 30;

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
      <${Hours} gpus=${cluster.gpus} />
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
    { name: "agents", text: agents(cluster) },
    { name: "disk", text: cluster.disk ? `${fixed(cluster.disk.free_bytes / GIB, 1)} of ${fixed(cluster.disk.bytes / GIB, 1)} GiB free, where the daemon keeps its state` : UNKNOWN },
    ...[...keeps].map((each) => ({ name: "memory limits", text: `enforced ${ENFORCERS[each] ?? each}` })),
  ]} />`;
}

/** Which nodes' GPUs are watched, and who has gone silent. */
function agents({ agents: all }) {
  if (!all.length) return "none: what is used on GPUs is not known";
  const silent = all.filter(({ heard_at }) => now() - heard_at > SILENT);
  const of = (one) => `${one.node} for ${span(now() - one.heard_at)}`;
  if (silent.length) return `${silent.length} of ${count(all.length, "agent")} silent: ${silent.slice(0, 5).map(of).join(", ")}${silent.length > 5 ? " …" : ""}`;
  return `${count(all.length, "agent")}, heard ${ago(Math.min(...all.map((one) => one.heard_at)), now())}`;
}

/** Memory and use of all GPUs, of a node, or of one GPU, for as long as the gateway knows. */
function Hours({ gpus }) {
  const [chosen, choose] = useState("{}");
  const answer = useLive("/api/v1/cluster/history", JSON.parse(chosen), () => false);
  useEffect(() => {
    const again = setInterval(answer.reload, 60000);
    return () => clearInterval(again);
  }, [chosen]);
  const nodes = [...new Set(gpus.map((gpu) => gpu.node))];
  const options = [["{}", "all GPUs"],
    ...(nodes.length > 1 ? nodes.map((node) => [JSON.stringify({ node }), node]) : []),
    ...gpus.map(({ node, gpu, index }) => [JSON.stringify({ node, gpu }), `${nodes.length > 1 ? `${node} ` : ""}gpu${index}`])];
  const select = html`<select aria-label="of which GPUs" value=${chosen} onChange=${(event) => choose(event.target.value)}>
    ${options.map(([value, name]) => html`<option key=${value} value=${value}>${printable(name)}</option>`)}</select>`;
  return html`<${Panel} title="Over time" note="asked each minute while a page is open" end=${select}>
    <${Loaded} answer=${answer}>${(hours) => (hours.at.length ? html`<${Plots} hours=${hours} />`
      : html`<${Empty}>nothing is known of it yet<//>`)}<//>
    <p class="muted small">What was while no page was open is not known here, nor are temperature and power: Prometheus has them, with the metrics of the scheduler and of dcgm-exporter.</p><//>`;
}

function Plots({ hours }) {
  const { at, memory_mib: memory, granted_mib: granted, used_mib: used, busy } = hours;
  const end = at.at(-1);
  const begin = Math.min(at[0], end - 600);
  const shared = { at, begin, end, gap: 2.5 * hours.step_seconds, time: (moment) => clock(moment, moment).slice(0, 5) };
  const seen = used.some(known);
  const gib = (values) => values.map((mib) => (known(mib) ? mib / 1024 : null));
  const last = (values) => `${fixed((values.at(-1) ?? 0) / 1024, 1)} GiB`;
  return html`<div class="columns">
    <figure><figcaption class="legend"><b>Memory</b><span><i class="swatch c-primary" />granted ${last(granted)}</span>
        ${seen && html`<span><i class="swatch c-green" />used ${known(used.at(-1)) ? last(used) : UNKNOWN}</span>`}
        <span class="muted">of ${last(memory)}</span></figcaption>
      <${Lines} ...${shared} most=${Math.max(...memory) / 1024} format=${(mark) => `${mark} GiB`}
        lines=${[{ values: gib(granted), colour: "primary" }, { values: gib(used), colour: "green" }]}
        label=${`memory: granted ${last(granted)} of ${last(memory)}`} /></figure>
    <figure><figcaption class="legend"><b>Busy</b><span><i class="swatch c-amber" />SM ${percent(busy.at(-1))}</span></figcaption>
      ${busy.some(known) ? html`<${Lines} ...${shared} most=${100} format=${(mark) => `${mark}%`}
        lines=${[{ values: busy.map((part) => (known(part) ? 100 * part : null)), colour: "amber" }]}
        label=${`busy ${percent(busy.at(-1))}`} />` : html`<${Empty}>no agent sees these GPUs<//>`}</figure>
  </div>`;
}

const Table = ({ gpus }) => html`<div class="scroll"><table>
  <thead><tr><th>Node</th><th>GPU</th><th class="roomy">Type</th><th class="number">Granted</th><th class="number roomy">For jobs</th>
    <th class="number">Used</th><th class="number">Busy</th><th>Jobs</th><th>Fault</th></tr></thead>
  <tbody>${gpus.map((gpu) => html`<tr key=${`${gpu.node} ${gpu.gpu}`}>
    <td class="nowrap"><${Text}>${gpu.node}<//></td><td class="nowrap" title=${printable(gpu.gpu)}>gpu${gpu.index}</td><td class="nowrap roomy"><${Text}>${gpu.type}<//></td>
    <td class="number">${number(gpu.reserved_mib)}</td><td class="number roomy">${number(gpu.capacity_mib)}</td>
    <td class="number">${number(gpu.used_mib)}</td><td class="number">${percent(gpu.busy)}</td>
    <td class="jobs">${gpu.jobs.map((job, i) => html`${i > 0 && ", "}<${JobLink} job=${job} />`)}</td>
    <td class="fault"><${Text}>${trouble(gpu)}<//></td></tr>`)}</tbody>
</table></div>`;
