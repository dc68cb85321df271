// The GPUs as bars: what each run was granted, what is seen, and what does not belong to us.

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { useLive, watch } from "./live.js";
import { Text, jobPath } from "./parts.js";
import { UNKNOWN, known, number, percent, printable } from "./words.js";

const REST_MS = 3000; // between two looks at the whole cluster
const MANY = 24; // GPUs: from here on, small bars

/** The cluster. What events say of jobs is on it at once; what is seen on GPUs comes with the next look. */
export function useCluster() {
  const since = useRef({ data: null, jobs: new Map() });
  useEffect(() => watch((event) => event?.jobs?.forEach((job) => since.current.jobs.set(job.id, job))), []);
  const touches = (event) => event.list_again || event.jobs?.length || event.facts?.some((fact) => !fact.job_id);
  const answer = useLive("/api/v1/cluster", null, touches, REST_MS);
  if (answer.data !== since.current.data) since.current = { data: answer.data, jobs: new Map() };
  const { jobs } = since.current;
  if (!answer.data || !jobs.size) return answer;
  return { ...answer, data: { ...answer.data, gpus: answer.data.gpus.map((gpu) => changed(gpu, jobs)) } };
}

export function changed(gpu, jobs) {
  const before = gpu.jobs.filter((job) => jobs.has(job.id));
  const after = [...jobs.values()].flatMap((job) => job.shares
    .filter((share) => share.node === gpu.node && share.gpu === gpu.gpu)
    .map(({ memory_mib }) => ({ ...job, memory_mib, used_mib: null })));
  if (!before.length && !after.length) return gpu;
  const sum = (some) => some.reduce((all, job) => all + job.memory_mib, 0);
  return {
    ...gpu,
    reserved_mib: gpu.reserved_mib - sum(before) + sum(after),
    jobs: [...gpu.jobs.filter((job) => !jobs.has(job.id)), ...after],
  };
}

export function hue(id) {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.charCodeAt(0)) >>> 0;
  return `hue${sum % 8}`;
}

export function GpuMap({ gpus }) {
  const nodes = new Map();
  for (const gpu of gpus) nodes.set(gpu.node, [...(nodes.get(gpu.node) ?? []), gpu]);
  const many = gpus.length > MANY;
  const seen = gpus.some((gpu) => known(gpu.used_mib)); // where nothing watches them, that says nothing
  return html`<div>
    ${[...nodes].map(([node, its]) => html`<div class="node" key=${node}>
      ${nodes.size > 1 && html`<h3><${Text}>${node}<//></h3>`}
      <div class="gpus ${many ? "many" : ""}">${its.map((gpu) => html`<${Gpu} gpu=${gpu} seen=${seen} />`)}</div>
    </div>`)}
    <div class="key" aria-hidden="true">
      <span><i class="k-share" />granted to a job</span>
      ${seen && html`<span><i class="k-seen" />seen in use</span><span><i class="k-foreign" />used by others</span>`}
      <span><i class="k-beyond" />not for jobs</span>
    </div>
  </div>`;
}

export const trouble = (gpu) => (gpu.lost ? `lost${gpu.fault ? `: ${gpu.fault}` : ""}`
  : gpu.fault || (gpu.ready ? "" : "node not ready"));

function Gpu({ gpu, seen }) {
  const whole = gpu.memory_mib || gpu.capacity_mib || 1;
  const width = (mib) => ({ width: `${Math.min(100, (100 * mib) / whole)}%` });
  const held = gpu.reserved_mib - gpu.jobs.reduce((sum, job) => sum + job.memory_mib, 0);
  const ours = Math.max(0, (gpu.used_mib ?? 0) - gpu.strange_mib);
  const fault = trouble(gpu);
  return html`<div class="gpu ${fault ? "faulty" : ""}">
    <div class="name">gpu${gpu.index}<small><${Text}>${gpu.type}<//></small></div>
    <div class="bar" role="group" aria-label=${spoken(gpu)} title=${spoken(gpu)}>
      ${gpu.jobs.map((job) => html`<a class="share ${hue(job.id)}" key=${job.id} href=${jobPath(job.id)}
        style=${width(job.memory_mib)} title=${share(job)}
        ><${Text}>${job.name}<//></a>`)}
      ${held > 0 && html`<span class="share holding" style=${width(held)} />`}
      <span class="beyond" style=${width(whole - gpu.capacity_mib)} />
      ${known(gpu.used_mib) && html`<span class="seen" style=${width(ours)} />`}
      ${gpu.strange_mib > 0 && html`<span class="foreign"
        style=${{ ...width(gpu.strange_mib), left: width(ours).width }} />`}
    </div>
    <div class="figures"><b>${number(gpu.reserved_mib)}</b> of ${number(gpu.capacity_mib)} MiB
      ${seen && html`,${" "}<br />used ${number(gpu.used_mib)}, busy ${percent(gpu.busy)}`}</div>
    ${(fault || gpu.strange_mib > 0 || held > 0) && html`<div class="what">
      ${fault && html`<span class="fault"><${Text}>${fault}<//></span> `}
      ${gpu.strange_mib > 0 && html`<span>${number(gpu.strange_mib)} MiB used by processes that are not
        of this scheduler: ${strangers(gpu)}. </span>`}
      ${held > 0 && html`<span class="muted">${number(held)} MiB held by runs that are ending</span>`}
    </div>`}
  </div>`;
}

const share = (job) => `${printable(job.name)}: ${number(job.memory_mib)} MiB${
  known(job.used_mib) ? `, uses ${number(job.used_mib)}` : ""}${known(job.busy) ? `, busy ${percent(job.busy)}` : ""}`;

const strangers = (gpu) => html`<${Text}>${gpu.processes.filter((each) => !each.job)
  .map((each) => `${each.name || "unknown"} (${each.pid})`).join(", ") || UNKNOWN}<//>`;

function spoken(gpu) {
  const jobs = gpu.jobs.map((job) => `${printable(job.name)} ${number(job.memory_mib)} MiB`);
  const used = known(gpu.used_mib) ? `, ${number(gpu.used_mib)} MiB seen in use` : "";
  return `${printable(gpu.node)} gpu${gpu.index}: ${jobs.join(", ") || "free"}${used}`;
}
