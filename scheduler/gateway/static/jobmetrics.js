// What a job logs, as small curves that grow while it runs.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Refused, address, get, getOnce } from "./api.js";
import { columns, joined } from "./curves.js";
import { sure } from "./live.js";
import { Empty, Panel, Text } from "./parts.js";
import { Plot } from "./plot.js";
import { live, number, printable, short, span } from "./words.js";

const SHOWN = 6;
const POINTS = 300; // of a curve
const LOOK_MS = 3000;
const LATE_SECONDS = 20; // points may arrive so much later than newer ones of another curve
const WHOLE_LOOKS = 40; // after so many looks, everything is loaded again

export function JobMetrics({ job }) {
  const [all, setAll] = useState(false);
  const { series, curves, error } = useMetrics(job, all ? 1000 : SHOWN);
  if (error?.status === 503 || !(series || error)) return null; // it keeps none, or does not say yet
  const shown = series?.filter((each) => curves[each.name]) ?? [];
  const others = job.experiment ? { text: "compare with its experiment", to: address("/experiments", { experiment: job.experiment, all_users: "true" }) }
    : { text: "experiments", to: "/experiments" };
  return html`<${Panel} title="Metrics" note=${live(job) && series?.length ? "as it logs them" : ""} end=${html`<a href=${others.to}>${others.text}</a>`}>
    ${error && html`<p class="error" role="alert">${printable(error.message)}</p>`}
    ${series && !series.length ? html`<${Empty}>It has logged nothing yet. MLflow, TensorBoard and others are heard without a changed line: see <a href="/help">Help</a>.<//>` : null}
    <div class="smalls">${shown.map((each) => html`<${Small} key=${each.name} series=${each} curve=${curves[each.name]} began=${job.started_at ?? 0} />`)}</div>
    ${series?.length > SHOWN && !all && html`<button class="plain" onClick=${() => setAll(true)}>show all ${number(series.length)}</button>`}
  <//>`;
}

function Small({ series, curve, began }) {
  const byStep = Boolean(curve.steps);
  const made = useRef({});
  if (made.current.of !== curve) {
    made.current = { of: curve, lines: [{ name: series.name, colour: getComputedStyle(document.documentElement).getPropertyValue("--link").trim(), ...columns(curve, byStep ? "step" : "time", began) }] };
  }
  const told = (value) => (typeof value === "number" ? short(value) : printable(value ?? "–"));
  return html`<figure><figcaption><b><${Text}>${series.name}<//></b>
      <span class="muted">${told(series.last)}${typeof series.min === "number" && series.min !== series.max ? `, from ${short(series.min)} to ${short(series.max)}` : ""}</span></figcaption>
    <${Plot} curves=${made.current.lines} height=${120} formatX=${byStep ? short : span} unit=${byStep ? "step " : ""}
      label=${`${printable(series.name)}: last ${told(series.last)}, least ${told(series.min)}, greatest ${told(series.max)}`} /></figure>`;
}

/** `{series, curves, error}`: what there is, and the points of the first `limit` of it, by name. Of what
 * a job logs while it runs, only what is new is asked for. */
function useMetrics(job, limit) {
  const [state, setState] = useState({ series: null, curves: {}, error: null });
  const alive = useRef();
  alive.current = live(job);
  useEffect(() => {
    const path = `/api/v1/jobs/${encodeURIComponent(job.id)}`;
    let [curves, before, looks, timer, ended] = [{}, "", 0, null, false];
    const look = async () => {
      const { series } = await get(`${path}/series`);
      const drawn = series.filter((each) => each.kind !== "string");
      const names = drawn.slice(0, limit).map((each) => each.name);
      const now = JSON.stringify([names, drawn.slice(0, limit).map((each) => each.attempts)]);
      const whole = now !== before || looks % WHOLE_LOOKS === 0;
      const newest = Math.max(0, ...Object.values(curves).map((each) => each.times.at(-1) ?? 0));
      const grown = drawn.some((each) => names.includes(each.name) && each.last_at > newest);
      if (names.length && (whole || grown)) {
        const from = whole ? null : newest - LATE_SECONDS;
        const answer = await getOnce(`${path}/points`, { name: names, points_max: POINTS, from });
        curves = whole ? {} : { ...curves };
        for (const curve of answer.curves) curves[curve.name] = from && curves[curve.name] ? joined(curves[curve.name], curve, from) : curve;
      }
      [before, looks] = [now, looks + 1];
      if (!ended) setState({ series: drawn, curves, error: null });
    };
    const again = async () => {
      try {
        if (!document.hidden && (looks === 0 || sure())) await look();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (!ended) setState((old) => ({ ...old, error }));
      }
      if (!ended && (alive.current || looks === 0)) timer = setTimeout(again, LOOK_MS);
    };
    again();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [job.id, limit, live(job)]);
  return state;
}
