// Who uses the GPUs, who has used them, and who waits.

import { html } from "../vendor/preact-htm.js";
import { Bars } from "../chart.js";
import { useLive, useLoaded } from "../live.js";
import { get } from "../api.js";
import { Empty, Loaded, Panel, Text } from "../parts.js";
import { go } from "../router.js";
import { count, fixed, known, number, printable } from "../words.js";

const SPANS = [[7, "7 days"], [30, "30 days"], [90, "90 days"], [365, "a year"]];
const SHOWN = 7; // lines of their own; the rest is added up
const COLOURS = ["primary", "green", "amber", "violet", "red", "cyan", "strong", "muted"];
const DAY = 86400;
const later = (event) => event.list_again || event.jobs?.length;

export default function People({ query }) {
  const days = Number(query.days) || 30;
  const by = query.by === "project" ? "project" : "user";
  const users = useLive("/api/v1/users", null, later);
  const usage = useLoaded(() => get("/api/v1/usage", { first_day: dayBefore(days - 1) }), [days], () => false);
  const change = (changes) => go(`/people?${new URLSearchParams({ days, by, ...changes })}`, true);
  return html`
    <div class="head"><h1>People</h1></div>
    <div class="stack">
      <${Panel} title="Now" note="jobs that have not ended" body=${false}>
        <${Loaded} answer=${users}>${(answer) => html`<${Now} users=${answer.users} />`}<//><//>
      <${Panel} title="GPU-hours" note="a GPU that jobs share counts for each of them" end=${html`
          <select aria-label="time" value=${days} onChange=${(event) => change({ days: event.target.value })}>
            ${SPANS.map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select>${" "}
          <select aria-label="by" value=${by} onChange=${(event) => change({ by: event.target.value })}>
            <option value="user">by user</option><option value="project">by project</option></select>`}>
        <${Loaded} answer=${usage}>${(answer) => html`<${Usage} usage=${answer} by=${by} />`}<//><//>
    </div>`;
}

const dayBefore = (days) => new Date(Date.now() - days * DAY * 1000).toISOString().slice(0, 10);

function Now({ users }) {
  if (!users.length) return html`<div class="body"><${Empty}>no job runs or waits<//></div>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>User</th><th class="number">Running</th><th class="number">Waiting</th><th class="number">GPUs</th><th class="number">MiB</th></tr></thead>
    <tbody>${users.map((each) => html`<tr key=${each.user}>
      <td><a href="/jobs?${new URLSearchParams({ user: each.user })}"><${Text}>${each.user}<//></a></td>
      <td class="number">${number(each.running)}</td><td class="number">${number(each.waiting)}</td>
      <td class="number">${fixed(each.gpus, 1)}</td><td class="number">${number(each.memory_mib)}</td></tr>`)}</tbody>
  </table></div>`;
}

/** `{names, days, lines}`: hours of each name on each day, the names with most hours first. */
export function summed(usage, by) {
  const totals = new Map();
  for (const each of usage.days) {
    const name = each[by] || (by === "project" ? "no project" : "–");
    const of = totals.get(name) ?? { hours: 0, runs: 0, days: new Map() };
    of.hours += each.gpu_seconds / 3600;
    of.runs += each.runs;
    of.days.set(each.day, (of.days.get(each.day) ?? 0) + each.gpu_seconds / 3600);
    totals.set(name, of);
  }
  const names = [...totals].sort(([, one], [, other]) => other.hours - one.hours);
  const days = [];
  for (let at = Date.parse(usage.first_day); at <= Date.parse(usage.last_day); at += DAY * 1000) {
    days.push(new Date(at).toISOString().slice(0, 10));
  }
  return { names, days };
}

function Usage({ usage, by }) {
  const { names, days } = summed(usage, by);
  if (!names.length) return html`<${Empty}>no GPU was used in this time<//>`;
  const shown = names.slice(0, SHOWN);
  const rest = names.slice(SHOWN);
  const lines = shown.map(([name, of]) => [name, days.map((day) => of.days.get(day) ?? 0)]);
  if (rest.length) {
    lines.push([`${rest.length} others`, days.map((day) => rest.reduce((sum, [, of]) => sum + (of.days.get(day) ?? 0), 0))]);
  }
  const spoken = lines.map(([name, hours]) => `${printable(name)} ${fixed(hours.reduce((one, other) => one + other, 0), 1)}`);
  return html`
    <${Bars} labels=${days} format=${(hours) => `${hours} h`} label=${`GPU-hours: ${spoken.join(", ")}`}
      series=${lines.map(([name, values], i) => ({ name: printable(name), values, colour: COLOURS[i] }))} />
    ${usage.cut && html`<p class="muted small">only the newest days are shown</p>`}
    <div class="scroll"><table><thead><tr><th>${by === "project" ? "Project" : "User"}</th><th class="number">GPU-hours</th><th class="number">Share</th><th class="number">Runs</th></tr></thead>
      <tbody>${names.slice(0, 50).map(([name, of], i) => html`<tr key=${name}><td><i class="swatch c-${COLOURS[Math.min(i, SHOWN)]}" /><${Text}>${name}<//></td>
        <td class="number">${hours(of.hours)}</td><td class="number">${fixed((100 * of.hours) / (total(names) || 1))}%</td>
        <td class="number">${number(of.runs)}</td></tr>`)}</tbody></table></div>
    ${names.length > 50 && html`<p class="muted small">${count(names.length, "line")} in all</p>`}`;
}

const hours = (value) => fixed(value, value < 10 ? 2 : 1);
const total = (names) => names.reduce((all, [, of]) => all + of.hours, 0);
