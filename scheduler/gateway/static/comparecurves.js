// The curves of several jobs: loaded a metric at a time, drawn in facets.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { Refused, getOnce } from "./api.js";
import { columns, inOrder, joined, smoothed } from "./curves.js";
import { sure } from "./live.js";
import { Text } from "./parts.js";
import { Plot } from "./plot.js";
import { valueText } from "./table.js";
import { count, live, printable, short, span } from "./words.js";

export const EPOCH = /^(.*[/.])?epoch$/;
const POINTS_MAX = 2000, POINTS_LEAST = 150; // of a curve
const POINTS_ALL = 60000; // of all that are drawn
const LOOK_MS = 5000;
const LATE_SECONDS = 20; // points may arrive so much later than newer ones of another curve
const WHOLE_LOOKS = 30; // after so many looks, everything is loaded again
const RAW_MAX = 12; // curves beside which the values before smoothing are shown, too

/** `[of, error]`: the points of these metrics by name, each a Map by job and attempt, as they come. */
function usePoints(jobs, names, attempts, window) {
  const [state, setState] = useState({ of: {}, error: null });
  const alive = useRef();
  alive.current = jobs.some(live);
  const ids = jobs.map((job) => job.id);
  useEffect(() => {
    let [ended, timer, looks] = [false, null, 0];
    const most = Math.min(POINTS_MAX, Math.max(POINTS_LEAST, Math.floor(POINTS_ALL / (ids.length * names.length || 1))));
    const newest = {}; // by metric
    const kept = {};
    const load = async (name) => {
      const whole = looks % WHOLE_LOOKS === 0 || !newest[name];
      const from = whole ? null : newest[name] - LATE_SECONDS;
      const found = new Map(whole ? [] : kept[name]);
      const { curves } = await getOnce("/api/v1/points", { job: ids, name, points_max: most, from, ...window });
      for (const curve of curves) {
        const key = `${curve.job} `;
        found.set(key, found.has(key) && from ? joined(found.get(key), curve, from) : curve);
        newest[name] = Math.max(newest[name] ?? 0, curve.times.at(-1) ?? 0);
      }
      if (whole) {
        for (const [id, attempt] of attempts) {
          const older = await getOnce(`/api/v1/jobs/${encodeURIComponent(id)}/points`, { name, attempt, points_max: most, ...window });
          for (const curve of older.curves) found.set(`${id} ${attempt}`, { ...curve, attempt });
        }
      }
      if (ended || (!whole && !curves.length)) return;
      kept[name] = found;
      setState((before) => ({ of: { ...before.of, [name]: found }, error: null }));
    };
    const again = async () => {
      try {
        if (!document.hidden && (looks === 0 || sure())) {
          await Promise.all(names.map(load));
          looks += 1;
        }
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (!ended) setState((before) => ({ ...before, error }));
      }
      if (!ended && (alive.current || looks === 0)) timer = setTimeout(again, LOOK_MS);
    };
    again();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [JSON.stringify([ids, names, attempts, window]), alive.current]);
  return state;
}

export function Curves({ data, keys, looks, one, query, change, known, metrics }) {
  const x = ["time", "epoch"].includes(one("x")) ? one("x") : "step";
  const zoom = useMemo(() => {
    const [from, to] = [one("from"), one("to")].map((text) => (text === "" ? NaN : Number(text)));
    return from < to ? [from, to] : null;
  }, [one("from"), one("to")]);
  const epochs = x === "epoch" ? known.find(({ name }) => EPOCH.test(name))?.name : null;
  const drawn = metrics.filter((name) => known.some((each) => each.name === name));
  const older = one("older") === "true" ? data.jobs.flatMap((job) => job.attempts.slice(0, -1).map((attempt) => [job.id, attempt])) : [];
  const window = x === "step" && zoom ? { from_step: Math.max(0, Math.floor(zoom[0])), to_step: Math.max(0, Math.ceil(zoom[1])) } : {};
  const { of, error } = usePoints(data.jobs, epochs && !drawn.includes(epochs) ? [...drawn, epochs] : drawn, older, window);
  const hidden = new Set(query.hide ?? []);
  const weight = Math.min(0.999, Math.max(0, Number(one("smooth")) || 0));
  const facets = useMemo(() => {
    const begins = beginnings(data.jobs, Object.values(of));
    return drawn.map((name) => facetsOf(of[name], (job) => !hidden.has(job.id)));

    function facetsOf(points, isShown) {
      if (!points) return null;
      const cols = one("cols");
      const valueOf = (job) => (keys.has(cols) ? keys.get(cols)[job.id] ?? null : null);
      const jobs = data.jobs.filter(isShown);
      const made = new Map(inOrder(jobs.map(valueOf)).different.map((value) => [JSON.stringify(value), { value, curves: [] }]));
      for (const job of jobs) {
        const { curves } = made.get(JSON.stringify(valueOf(job)));
        for (const [key, curve] of points) {
          if (!key.startsWith(`${job.id} `)) continue;
          const raw = columns(curve, x, begins.get(job.id), epochs && of[epochs]?.get(`${job.id} `));
          const look = looks.of(job.id);
          const line = { name: curve.attempt ? `${look.name}, attempt ${curve.attempt}` : look.name, colour: look.colour, dash: curve.attempt ? [3, 3] : look.dash };
          if (weight && jobs.length <= RAW_MAX) curves.push({ ...line, ...raw, faint: true, raw: true });
          curves.push({ ...line, ...smoothed(raw, weight), faint: Boolean(curve.attempt) });
        }
      }
      const all = [...made.values()];
      return { all, among: all.flatMap(({ curves }) => curves) };
    }
  }, [of, data, looks, x, weight, one("cols"), JSON.stringify([drawn, query.hide])]);
  const shared = {
    zoom, opacity: Number(one("opacity")) || 1, logX: one("logx") === "true", logY: one("logy") === "true",
    formatX: x === "time" ? span : short, unit: x === "time" ? "" : `${x} `,
    onZoom: (range) => change(range ? { from: Number(range[0].toPrecision(6)), to: Number(range[1].toPrecision(6)) } : { from: "", to: "" }),
  };
  return html`${error && html`<p class="error" role="alert">${printable(error.message)}</p>`}
    <div class="facets ${one("cols") ? "narrow" : drawn.length === 1 ? "single" : ""}">${drawn.map((name, i) => (facets[i] ? facets[i].all.map(({ value, curves }) => html`<figure key=${`${name} ${JSON.stringify(value)}`}>
      <figcaption><b><${Text}>${name}<//></b>${one("cols") && html` <span class="muted"><${Text}>${`${one("cols")} ${valueText(one("cols"), value)}`}<//></span>`}</figcaption>
      <${Plot} ...${shared} curves=${curves} among=${facets[i].among} height=${drawn.length === 1 && !one("cols") ? 380 : 260}
        label=${`${printable(name)} of ${count(curves.filter((each) => !each.raw).length, "job or attempt", "jobs or attempts")} along the ${x}. Left and right: along, up and down: another curve, + and −: nearer and back.`} /></figure>`)
      : html`<figure key=${name}><figcaption><b><${Text}>${name}<//></b></figcaption><p class="empty" role="status">loading …</p></figure>`))}</div>
    <p class="muted small">Drag over a plot to see a part of it, double-click for all. ${one("older") === "true" ? "Older attempts are dotted." : ""}</p>`;
}

/** When each job began: its start, or its first point if it is older or not known. */
function beginnings(jobs, all) {
  const found = new Map(jobs.map((job) => [job.id, job.started_at ?? Infinity]));
  for (const points of all) {
    for (const curve of points.values()) if (curve.times[0] < found.get(curve.job)) found.set(curve.job, curve.times[0]);
  }
  return found;
}
