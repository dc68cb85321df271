// Jobs compared: their curves, what was set differently, and what that came to. All choices are in the
// address.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js";
import { address, get } from "../api.js";
import { Choices } from "../choices.js";
import { Config, Figures } from "../comparetables.js";
import { Curves, EPOCH } from "../comparecurves.js";
import { DASHES, inOrder, palette } from "../curves.js";
import { ON_GPUS } from "../joblist.js";
import { sure, useLoaded } from "../live.js";
import { Empty, JobLink, Loaded, Panel, State, Text } from "../parts.js";
import { useDark } from "../plot.js";
import { go, listsInAddress } from "../router.js";
import { Parallel, Scatter } from "../spread.js";
import { isMeasured, valueText } from "../table.js";
import { count, live as isLive, printable, shortId } from "../words.js";

const LOOK_MS = 10000;
const METRICS = 4; // that are drawn if none is chosen
const MOVED_MS = 60; // while a slider is moved

const change = (changes) => go(address("/compare", { ...listsInAddress(), ...changes }), true);

export default function Compare() {
  const query = listsInAddress();
  const one = (name) => query[name]?.[0] ?? "";
  const asked = { job: query.job ?? [], all: one("all") };
  const answer = useLoaded(() => (asked.job.length ? get("/api/v1/compare", asked) : { jobs: [] }), [JSON.stringify(asked)],
    (event) => event.list_again || event.jobs?.some((job) => asked.job.includes(job.id)), LOOK_MS / 2, true);
  const alive = answer.data?.jobs.some(isLive);
  useEffect(() => {
    const timer = setInterval(() => alive && sure() && !document.hidden && answer.reload(), LOOK_MS);
    return () => clearInterval(timer);
  }, [alive]);
  return html`<div class="head"><h1>Compare</h1>
      <span class="muted" role="status">${answer.data?.jobs.length > 0 && count(answer.data.jobs.length, "job")}</span>
      <div class="actions">${answer.data?.jobs.length > 0 && html`<a class="button" download="compared.html" href=${fileOf(query)}>Save as a file</a>`}
        <a class="button" href="/experiments">Choose jobs</a></div></div>
    <${Loaded} answer=${answer}>${(data) => (data.jobs.length ? html`<${Whole} data=${data} one=${one} query=${query} />`
      : html`<div class="panel"><div class="body"><${Empty}>Choose two jobs or more in <a href="/experiments">Experiments</a>.<//></div></div>`)}<//>`;
}

/** The same as one file, as far as a file can have it. */
const IN_FILE = ["job", "all", "metric", "x", "smooth", "logx", "logy", "opacity", "hue", "pattern", "cols", "hide"];
const fileOf = (query) => address("/api/v1/compare/export", Object.fromEntries(IN_FILE.map((name) => [name, query[name]])));

function Whole({ data, one, query }) {
  const dark = useDark();
  const keys = useMemo(() => keysOf(data), [data]);
  const looks = useMemo(() => looksOf(data.jobs, keys, one("hue"), one("pattern"), dark), [data, keys, one("hue"), one("pattern"), dark]);
  const known = data.metrics.filter((each) => !Object.values(each.values).every(({ last }) => typeof last === "string" && !/^(NaN|-?Infinity)$/.test(last)));
  const judged = known.filter(({ rises }) => rises !== null);
  const metrics = query.metric ?? (judged.length ? judged : known).slice(0, METRICS).map((each) => each.name);
  const config = [...keys.keys()].filter((name) => !isMeasured(name));
  const shared = { data, keys, looks, one, query, change };
  // Many cells and lines, which do not change with the curves.
  const tables = useMemo(() => html`<${Config} ...${shared} /><${Figures} ...${shared} />`, [data, looks, one("all")]);
  const spread = useMemo(() => data.jobs.length > 1 && keys.size > 1 && html`<${Parallel} ...${shared} /><${Scatter} ...${shared} />`,
    [data, keys, looks, one("sx"), one("sy"), JSON.stringify(query.axis)]);
  return html`<div class="stack">
    ${data.remarks.map((remark) => html`<p class="muted">${remark}.</p>`)}
    <${Panel} title="Curves" note=${one("hue") ? `coloured by ${printable(one("hue"))}` : ""}>
      <${Controls} one=${one} change=${change} known=${known} metrics=${metrics} config=${config} />
      <${Legend} ...${shared} />
      ${known.length ? html`<${Curves} ...${shared} known=${known} metrics=${metrics} />` : html`<${Empty}>There is no metric that two of these jobs have logged.<//>`}
    <//>
    ${tables}
    ${spread}
  </div>`;
}

/** What can be on an axis, or in a colour: by name, the value of each job by its id. */
function keysOf({ config, metrics }) {
  const found = new Map();
  for (const { key, differs, values } of config) if (differs) found.set(key, values);
  for (const { name, rises, values } of metrics) {
    for (const statistic of rises === null ? ["last"] : ["last", rises ? "max" : "min"]) {
      found.set(`${statistic}.${name}`, Object.fromEntries(Object.entries(values).map(([id, of]) => [id, of[statistic]])));
    }
  }
  return found;
}

/** How each job is drawn, by its id: `{colour, dash, name}`; `hues`, `patterns`: what these mean. */
function looksOf(jobs, keys, hue, pattern, dark) {
  const valueOf = (key, job) => (keys.has(key) ? keys.get(key)[job.id] ?? null : job.id);
  const kinds = (key) => (keys.has(key) ? inOrder(jobs.map((job) => valueOf(key, job))) : { different: jobs.map((job) => job.id), numbers: false });
  const hues = kinds(hue);
  const colours = palette(hues.different.length, hues.numbers, dark);
  const patterns = keys.has(pattern) ? kinds(pattern) : { different: [] };
  const place = (all, value) => all.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
  const names = new Map(jobs.map((job) => [job.name, (jobs.filter((each) => each.name === job.name).length)]));
  const found = new Map(jobs.map((job) => [job.id, {
    colour: colours[place(hues.different, valueOf(hue, job))],
    dash: patterns.different.length ? DASHES[place(patterns.different, valueOf(pattern, job)) % DASHES.length] : [],
    name: names.get(job.name) > 1 ? `${printable(job.name)} (${shortId(job.id)})` : printable(job.name),
  }]));
  const told = (all, what) => all.map((value, i) => ({ value, ...what(i) }));
  return {
    of: (id) => found.get(id),
    hues: keys.has(hue) ? told(hues.different, (i) => ({ colour: colours[i] })) : [],
    patterns: told(patterns.different, (i) => ({ dash: DASHES[i % DASHES.length] })),
  };
}

// --- controls -----------------------------------------------------------------------------------

function Controls({ one, change, known, metrics, config }) {
  const select = (name, label, options) => html`<label>${label}<select value=${one(name)} onChange=${(event) => change({ [name]: event.target.value })}>
    ${options.map(([value, text]) => html`<option value=${value}>${printable(text)}</option>`)}</select></label>`;
  const keys = config.map((key) => [key, key]);
  const epoch = known.some(({ name }) => EPOCH.test(name));
  const zoomed = one("from") || one("to");
  return html`<div class="filters">
    <${Choices} label="Metrics" known=${known.map(({ name, values }) => ({ name, about: count(Object.keys(values).length, "job") }))}
      chosen=${metrics} hint="loss, acc …" change=${(metric) => change({ metric })} />
    ${select("x", "Along", [["", "step"], ["time", "time"], ...(epoch || one("x") === "epoch" ? [["epoch", "epoch"]] : [])])}
    ${select("hue", "Colour by", [["", "job"], ...keys])}
    ${select("pattern", "Dashes by", [["", "nothing"], ...keys])}
    ${select("cols", "A plot for each", [["", "metric"], ...keys])}
    <${Slider} name="smooth" label="Smoothing" one=${one} change=${change} most="0.99" start="0" />
    <${Slider} name="opacity" label="Opacity" one=${one} change=${change} least="0.1" most="1" start="1" />
    <div class="field checks"><span aria-hidden="true">Show</span><span>
      ${[["logx", "log x"], ["logy", "log y"], ["older", "older attempts"]].map(([name, label]) => html`<label class="check"><input type="checkbox"
        checked=${one(name) === "true"} onChange=${(event) => change({ [name]: event.target.checked ? "true" : "" })} />${label}</label>`)}
      ${zoomed && html`<button type="button" class="plain" onClick=${() => change({ from: "", to: "" })}>show all x</button>`}</span></div>
  </div>`;
}

function Slider({ name, label, one, change, least = "0", most, start }) {
  const [moved, move] = useState(null);
  const timer = useRef();
  const value = moved ?? (one(name) || start);
  return html`<label>${label} ${Number(value)}<input type="range" min=${least} max=${most} step="0.01" value=${value} onInput=${(event) => {
    const given = event.target.value;
    move(given);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      change({ [name]: Number(given) === Number(start) ? "" : given });
      move(null);
    }, MOVED_MS);
  }} /></label>`;
}

const Swatch = ({ colour }) => html`<i class="swatch" style=${{ background: colour }} />`;

/** The jobs, each with its colour; and what colours and dashes mean. */
function Legend({ data, looks, one, query, change }) {
  const hidden = new Set(query.hide ?? []);
  const toggle = (id) => change({ hide: hidden.has(id) ? query.hide.filter((each) => each !== id) : [...hidden, id] });
  const line = ({ dash }) => html`<svg class="dash" width="30" height="8" aria-hidden="true"><line x1="0" x2="30" y1="4" y2="4" stroke-dasharray=${dash.join(" ")} /></svg>`;
  return html`
    <ul class="jobs">${data.jobs.map((job) => html`<li key=${job.id} class=${hidden.has(job.id) ? "off" : ""}>
      <button type="button" class="plain" aria-pressed=${!hidden.has(job.id)} title="show or hide its curves" aria-label="curves of ${looks.of(job.id).name}" onClick=${() => toggle(job.id)}><${Swatch} colour=${looks.of(job.id).colour} /></button>
      <${JobLink} job=${{ ...job, name: looks.of(job.id).name }} />${ON_GPUS.includes(job.state) && html` <${State} state=${job.state} />`}
      <button type="button" class="plain" title="take it out of the comparison" aria-label="without ${looks.of(job.id).name}"
        onClick=${() => change({ job: data.jobs.map((each) => each.id).filter((id) => id !== job.id) })}>×</button></li>`)}</ul>
    ${(looks.hues.length > 0 || looks.patterns.length > 0) && html`<p class="legend small">
      ${looks.hues.length > 0 && html`<b><${Text}>${one("hue")}<//></b>`}${looks.hues.map(({ value, colour }) => html`<span><${Swatch} colour=${colour} /><${Text}>${valueText(one("hue"), value)}<//></span>`)}
      ${looks.patterns.length > 0 && html`<b><${Text}>${one("pattern")}<//></b>`}${looks.patterns.map((each) => html`<span>${line(each)} <${Text}>${valueText(one("pattern"), each.value)}<//></span>`)}</p>`}`;
}
