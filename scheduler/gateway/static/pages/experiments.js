// Jobs as a table of what was set and what was measured. What is shown is part of the address.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { Star } from "../annotations.js";
import { address, get } from "../api.js";
import { Choices } from "../choices.js";
import { LIVE, STATES } from "../joblist.js";
import { sure, useLoaded } from "../live.js";
import { Empty, Loaded, State, Text } from "../parts.js";
import { go, listsInAddress } from "../router.js";
import { useVisible } from "../rows.js";
import { Cell, isMeasured, isNumber, nameOf, valueText } from "../table.js";
import { count, number, printable, shortId } from "../words.js";

const LIMIT = 1000;
const COMPARED_MAX = 100;
const TYPING_MS = 100;
const REST_MS = 5000;
const LOOK_MS = 15000; // what is logged changes without an event
const GROUPS_MAX = 60;

export default function Experiments() {
  const query = listsInAddress();
  const one = (name) => query[name]?.[0] ?? "";
  const change = (changes) => go(address("/experiments", { ...query, ...changes }), true);
  const asked = {
    ...query, group: null, limit: LIMIT,
    order: one("order") || (one("group") ? one("group") : ""),
    ascending: one("ascending") || (one("group") && !one("order") ? "true" : ""),
    column: query.column ? [...query.column, one("group")] : null,
  };
  const answer = useLoaded(() => get("/api/v1/experiments", asked), [JSON.stringify(asked)],
    (event) => event.list_again || event.jobs?.length, REST_MS, true);
  const alive = answer.data?.rows.some((row) => LIVE.includes(row.state));
  useEffect(() => {
    const timer = setInterval(() => alive && sure() && !document.hidden && answer.reload(), LOOK_MS);
    return () => clearInterval(timer);
  }, [alive]);
  const [chosen, choose] = useState(() => new Set());
  const [failure, fail] = useState("");
  const rows = answer.data?.rows ?? [];
  const picked = rows.filter((row) => chosen.has(row.id)).map((row) => row.id);
  return html`
    <div class="head"><h1>Experiments</h1>
      <span class="muted" role="status">${answer.data && told(answer.data)}</span>
      <div class="actions">
        ${picked.length > 0 && html`<span class="muted">${picked.length} chosen</span><button onClick=${() => choose(new Set())}>None</button>`}
        <button class="primary" disabled=${picked.length < 2 || picked.length > COMPARED_MAX} onClick=${() => go(address("/compare", { job: picked }))}
          title=${picked.length > COMPARED_MAX ? `at most ${COMPARED_MAX}` : "of two jobs or more"}>Compare</button>
      </div></div>
    <${Filters} query=${query} one=${one} change=${change} data=${answer.data} />
    ${failure && html`<p class="error" role="alert">${printable(failure)}</p>`}
    <${Loaded} answer=${answer}>${(data) => html`
      ${data.remarks.map((remark) => html`<p class="muted">${remark}.</p>`)}
      <div class="panel">${data.rows.length ? html`<${Table} data=${data} one=${one} change=${change} chosen=${chosen} choose=${choose} fail=${fail} />`
        : html`<div class="body"><${Empty}>no job matches<//></div>`}</div>`}<//>`;
}

function told({ rows, total, not_looked_at: more }) {
  const shown = rows.length < total ? `the first ${number(rows.length)} of ${count(total, "job")}` : count(total, "job");
  return more ? `${shown}; ${number(more)} older ones were not looked at` : shown;
}

// --- what is asked ------------------------------------------------------------------------------

function Filters({ query, one, change, data }) {
  const [typed, type] = useState({});
  const timer = useRef();
  useEffect(() => type({}), [JSON.stringify(query)]);
  const input = (name) => ({
    value: typed[name] ?? one(name),
    onInput: (event) => {
      const { value } = event.target;
      type((before) => ({ ...before, [name]: value }));
      clearTimeout(timer.current);
      timer.current = setTimeout(() => change({ [name]: value.trim() }), TYPING_MS);
    },
  });
  const groups = data?.known.filter((each) => each.different > 1 && each.different <= GROUPS_MAX && !isMeasured(each.name)).map((each) => each.name) ?? [];
  if (one("group") && !groups.includes(one("group"))) groups.push(one("group"));
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="wide">Search<input type="search" ...${input("search")} placeholder="words, or lr<=0.01 min.loss<0.3 net~resnet" /></label>
    <label>Experiment<input size="12" ...${input("experiment")} placeholder="any" /></label>
    <label>Whose<select value=${one("all_users")} onChange=${(event) => change({ all_users: event.target.value })}>
      <option value="">mine</option><option value="true">of all users</option></select></label>
    <label>State<select value=${one("state")} onChange=${(event) => change({ state: event.target.value })}>
      <option value="">all</option>${STATES.map((state) => html`<option value=${state}>${state}</option>`)}</select></label>
    <label>Group by<select value=${one("group")} onChange=${(event) => change({ group: event.target.value })}>
      <option value="">nothing</option>${groups.map((name) => html`<option value=${name}>${printable(name)}</option>`)}</select></label>
    ${data && html`<${Choices} label="Columns" known=${listed(data.known)} chosen=${query.column ?? data.columns} hint="lr, loss, option …"
      change=${(column) => change({ column })} />`}
  </form>`;
}

/** What differs comes first. */
const listed = (known) => [...known].sort((one, other) => (other.different > 1) - (one.different > 1))
  .map(({ name, jobs, different }) => ({ name, about: `${count(jobs, "job")}, ${count(different, "value")}` }));

// --- the table ----------------------------------------------------------------------------------

/** Rows, with a line above each group that says what its rows have in common. */
function lines(data, group) {
  if (!group) return data.rows.map((row) => ({ row }));
  const at = data.columns.indexOf(group);
  const groups = new Map();
  for (const row of data.rows) {
    const key = JSON.stringify(row.values[at] ?? null);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups].flatMap(([key, rows]) => [{ key, value: JSON.parse(key), rows }, ...rows.map((row) => ({ row }))]);
}

const mean = (values) => (values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : null);

function Table({ data, one, change, chosen, choose, fail }) {
  const box = useRef();
  const group = data.columns.includes(one("group")) ? one("group") : "";
  const all = lines(data, group);
  const [first, last, height, onScroll] = useVisible(box, all.length);
  const shown = data.columns.filter((name) => name !== "name" && name !== group);
  const places = shown.map((name) => data.columns.indexOf(name));
  const right = shown.map((name, i) => isNumber(name) || data.rows.every(({ values }) => values[places[i]] === null || typeof values[places[i]] === "number"));
  const pick = (ids, on) => choose((before) => {
    const after = new Set(before);
    for (const id of ids) after[on ? "add" : "delete"](id);
    return after;
  });
  const every = (rows) => rows.every((row) => chosen.has(row.id));
  const space = (rows) => html`<tr class="space" aria-hidden="true"><td colspan=${shown.length + 3} style=${{ height: `${rows * height}px` }} /></tr>`;
  return html`<div class="rows wide" ref=${box} tabindex="0" role="region" aria-label="the table of jobs" onScroll=${onScroll}>
    <table aria-rowcount=${all.length + 1} style=${{ width: `max(100%, ${24 + 8.4 * shown.length}rem)` }}>
      <thead><tr aria-rowindex="1">
        <th class="w-check"><input type="checkbox" aria-label="choose all jobs of the table" checked=${every(data.rows)}
          onChange=${(event) => pick(data.rows.map((row) => row.id), event.target.checked)} /></th>
        <${Heading} column="name" one=${one} change=${change} /><th class="w-state roomy">state</th>
        ${shown.map((name, i) => html`<${Heading} key=${name} column=${name} right=${right[i]} one=${one} change=${change} />`)}
      </tr></thead>
      <tbody>${space(first)}
        ${all.slice(first, last).map(({ row, key, value, rows }, index) => (row
          ? html`<${Row} key=${row.id} row=${row} at=${first + index + 2} shown=${shown} places=${places} right=${right} chosen=${chosen.has(row.id)} pick=${pick} fail=${fail} />`
          : html`<tr class="job group" key=${key} aria-rowindex=${first + index + 2}>
            <td class="c-check"><input type="checkbox" aria-label="choose this group" checked=${every(rows)} onChange=${(event) => pick(rows.map((each) => each.id), event.target.checked)} /></td>
            <td><b><${Text}>${`${nameOf(group).name} ${valueText(group, value)}`}<//></b> <span class="muted" title=${count(rows.length, "job")}>(${number(rows.length)})</span></td><td class="roomy"></td>
            ${shown.map((name, i) => html`<td class=${right[i] ? "number" : ""}>${isNumber(name) && html`<span title="the mean of the group">⌀ ${valueText(name, mean(rows.map((each) => each.values[places[i]]).filter((each) => typeof each === "number")))}</span>`}</td>`)}
          </tr>`))}
        ${space(Math.max(0, all.length - last))}</tbody>
    </table></div>`;
}

function Heading({ column, right, one, change }) {
  const { kind, name } = nameOf(column);
  const active = (one("order") || (one("group") ? "" : "submitted_at")) === column;
  const up = one("ascending") === "true";
  // What is small is good of some, what is great of others: the first click sorts as it was, or up.
  const next = { order: column, ascending: active && up ? "" : "true" };
  return html`<th class="${column === "name" ? "w-what" : ""} ${right ? "number" : ""}" title=${printable(column)}
      aria-sort=${active ? (up ? "ascending" : "descending") : undefined}>
    <button onClick=${() => change(next)}>${kind && html`<small>${kind} </small>`}<${Text}>${name}<//>${active ? (up ? " ↑" : " ↓") : ""}</button></th>`;
}

const Row = ({ row, at, shown, places, right, chosen, pick, fail }) => html`<tr class="job ${chosen ? "chosen" : ""}" aria-rowindex=${at}>
  <td class="c-check"><input type="checkbox" checked=${chosen} aria-label="choose ${printable(row.name)} ${shortId(row.id)}"
    onChange=${(event) => pick([row.id], event.target.checked)} /></td>
  <td><${Star} id=${row.id} name=${row.name} starred=${row.star} failed=${fail} /><${Cell} column="name" row=${row} /></td><td class="roomy"><${State} state=${row.state} /></td>
  ${shown.map((name, i) => {
    const value = row.values[places[i]];
    return html`<td class=${right[i] ? "number" : ""} title=${printable(typeof value === "object" ? JSON.stringify(value) : value)}><${Cell} column=${name} value=${value} row=${row} /></td>`;
  })}
</tr>`;
