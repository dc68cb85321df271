// Jobs by their values: each a line through all axes, or a dot between two of them.

import { html, useMemo } from "./vendor/preact-htm.js";
import { useWidth } from "./chart.js";
import { Choices } from "./choices.js";
import { inOrder, numeric } from "./curves.js";
import { Empty, Panel, Text, jobPath } from "./parts.js";
import { ticksBetween, ticksOfPowers } from "./plot.js";
import { isMeasured, nameOf, valueText } from "./table.js";
import { known, printable, shortMarks } from "./words.js";

const AXES = 6;
const POWERS = 20; // numbers that differ by such a factor are on a logarithmic axis

/** Where the values of a key lie, from 0 to 1: `{at, marks, log}`; `at` of what is missing is null. */
export function axisOf(values) {
  const there = Object.values(values).filter((value) => known(value));
  const numbers = there.map(numeric).filter(Number.isFinite);
  if (numbers.length && there.every((value) => typeof value === "number" || Number.isNaN(numeric(value)) && value === "NaN" || /^-?Infinity$/.test(value))) {
    let [least, most] = [Math.min(...numbers), Math.max(...numbers)];
    const log = least > 0 && most / least >= POWERS;
    if (least === most) [least, most] = [least - (Math.abs(least) || 1) / 2, most + (Math.abs(most) || 1) / 2];
    const f = log ? Math.log10 : (value) => value;
    const at = (value) => (typeof value === "number" ? (f(value) - f(least)) / (f(most) - f(least)) : null);
    const marks = (log ? ticksOfPowers : ticksBetween)(least, most, 4);
    const labels = shortMarks(marks);
    return { at, log, marks: marks.map((mark, i) => ({ at: at(mark), text: labels[i] })) };
  }
  const { different } = inOrder(there);
  const places = new Map(different.map((value, i) => [JSON.stringify(value), different.length > 1 ? i / (different.length - 1) : 0.5]));
  const every = Math.ceil(different.length / 12);
  return {
    at: (value) => places.get(JSON.stringify(value)) ?? null,
    log: false,
    marks: different.filter((_, i) => i % every === 0).map((value) => ({ at: places.get(JSON.stringify(value)), text: printable(valueText("", value)).slice(0, 18) })),
  };
}

const told = (keys, names, job) => names.map((name) => `${nameOf(name).name} ${printable(valueText(name, keys.get(name)[job.id]))}`).join(", ");

// --- lines --------------------------------------------------------------------------------------

export function Parallel({ data, keys, looks, query, change }) {
  const chosen = useMemo(() => query.axis?.filter((name) => keys.has(name)) ?? chooseAxes(data, keys), [data, keys, JSON.stringify(query.axis)]);
  const [box, width] = useWidth();
  const axes = useMemo(() => chosen.map((name) => axisOf(keys.get(name))), [chosen]);
  const [top, bottom, height, side] = [34, 14, 300, 46];
  const step = (width - 2 * side) / Math.max(1, chosen.length - 1);
  const x = (i) => (chosen.length > 1 ? side + i * step : width / 2);
  const y = (at) => (at === null ? height - 3 : top + (height - top - bottom) * (1 - at));
  const choose = html`<${Choices} label="Axes" known=${[...keys].map(([name]) => ({ name, about: "" }))} chosen=${chosen} hint="lr, loss …" change=${(axis) => change({ axis })} />`;
  return html`<${Panel} title="All at once" note="a line for each job, through what was set and what it came to" end=${choose}>
    <div ref=${box}>${chosen.length > 1 && html`<svg class="drawn parallel" width=${width} height=${height} role="group" aria-label="a line for each job">
      ${axes.map(({ marks, log }, i) => html`<g key=${chosen[i]}><line class="axis" x1=${x(i)} x2=${x(i)} y1=${top} y2=${height - bottom} />
        <text class="label" x=${x(i)} y=${i % 2 && step < 130 ? 24 : 12} text-anchor=${i === 0 ? "start" : i === axes.length - 1 ? "end" : "middle"} dx=${i === 0 ? -side + 4 : i === axes.length - 1 ? side - 4 : 0}>${axisName(chosen[i])}${log ? " (log)" : ""}</text>
</g>`)}
      ${data.jobs.map((job) => html`<a key=${job.id} href=${jobPath(job.id)} aria-label=${`${looks.of(job.id).name}: ${told(keys, chosen, job)}`}>
        <title>${`${looks.of(job.id).name}: ${told(keys, chosen, job)}`}</title>
        <path class="through" d=${chosen.map((name, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(axes[i].at(keys.get(name)[job.id])).toFixed(1)}`).join("")}
          style=${{ stroke: looks.of(job.id).colour }} stroke-dasharray=${looks.of(job.id).dash.join(" ")} /></a>`)}
      ${axes.map(({ marks }, i) => marks.map(({ at, text }) => html`<text x=${x(i) - 5} y=${y(at) + 4} text-anchor="end">${text}</text>`))}
    </svg>`}</div>
    ${chosen.length < 2 && html`<${Empty}>Choose two axes or more.<//>`}<//>`;
}

const axisName = (name) => (isMeasured(name) ? `${nameOf(name).kind} ${printable(nameOf(name).name)}` : printable(nameOf(name).name)).slice(0, 22);

/** Params and labels first, then what it came to. */
function chooseAxes({ metrics }, keys) {
  const set = [...keys.keys()].filter((name) => /^(param|label)\./.test(name)).slice(0, AXES - 2);
  const best = metrics.filter(({ rises }) => rises !== null).slice(0, AXES - Math.min(AXES - 1, set.length)).map(({ name, rises }) => `${rises ? "max" : "min"}.${name}`);
  return [...set, ...best.filter((name) => keys.has(name))].slice(0, AXES);
}

// --- dots ---------------------------------------------------------------------------------------

export function Scatter({ data, keys, looks, one, change }) {
  const names = [...keys.keys()];
  const measured = names.filter(isMeasured);
  const set = names.filter((name) => !isMeasured(name));
  const [across, up] = [keys.has(one("sx")) ? one("sx") : set[0] ?? names[0], keys.has(one("sy")) ? one("sy") : measured.find((name) => /^(min|max)\./.test(name)) ?? names.at(-1)];
  const [box, width] = useWidth();
  const [left, bottom, top, height] = [78, 30, 10, 320];
  const [ax, ay] = [axisOf(keys.get(across)), axisOf(keys.get(up))];
  const x = (at) => left + 14 + (width - left - 34) * at;
  const y = (at) => top + 10 + (height - top - bottom - 20) * (1 - at);
  const select = (name, label, value) => html`<label class="check">${label} <select aria-label=${label} value=${value} onChange=${(event) => change({ [name]: event.target.value })}>
    ${names.map((each) => html`<option value=${each}>${printable(each)}</option>`)}</select></label>`;
  const dots = data.jobs.map((job) => ({ job, at: [ax.at(keys.get(across)[job.id]), ay.at(keys.get(up)[job.id])] }));
  const shown = dots.filter(({ at }) => at.every((each) => each !== null));
  return html`<${Panel} title="One by another" end=${html`<span class="legend">${select("sy", "up", up)}${select("sx", "across", across)}</span>`}>
    <div ref=${box}><svg class="drawn scatter" width=${width} height=${height} role="group" aria-label=${`${printable(up)} by ${printable(across)}`}>
      ${ay.marks.map(({ at, text }) => html`<line class="axis" x1=${left} x2=${width} y1=${y(at)} y2=${y(at)} /><text x=${left - 7} y=${y(at) + 4} text-anchor="end">${text}</text>`)}
      ${ax.marks.map(({ at, text }) => html`<text x=${x(at)} y=${height - 10} text-anchor="middle">${text}</text>`)}
      ${shown.map(({ job, at }) => html`<a key=${job.id} href=${jobPath(job.id)} aria-label=${`${looks.of(job.id).name}: ${told(keys, [across, up], job)}`}>
        <title>${`${looks.of(job.id).name}: ${told(keys, [across, up], job)}`}</title>
        <circle cx=${x(at[0])} cy=${y(at[1])} r="6" style=${{ fill: looks.of(job.id).colour }} /></a>`)}
    </svg></div>
    <p class="muted small"><${Text}>${up}<//>${ay.log ? " (log)" : ""} by <${Text}>${across}<//>${ax.log ? " (log)" : ""}${shown.length < dots.length ? `; ${dots.length - shown.length} without a value are not shown` : ""}</p><//>`;
}
