// Small plots, drawn as SVG: they need no library, follow the colours of the page, and can be read.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { known } from "./words.js";

const TOP = 8, BOTTOM = 20, LEFT = 58;

/** `[ref, width]` of an element, also after it has changed. */
export function useWidth() {
  const box = useRef();
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(box.current.clientWidth));
    setWidth(box.current.clientWidth);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

/** Up to five round numbers from 0 to at least `most`. */
export function ticks(most) {
  const raw = (most || 1) / 4;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * unit).find((each) => each >= raw * 0.999);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

function Axes({ marks, y, width, format }) {
  return marks.map((mark) => html`<line class="axis" x1=${LEFT} x2=${width} y1=${y(mark)} y2=${y(mark)} />
    <text x=${LEFT - 7} y=${y(mark) + 4} text-anchor="end">${format(mark)}</text>`);
}

const scale = (marks, height) => (value) => TOP + (height - TOP - BOTTOM) * (1 - value / (marks.at(-1) || 1));

/** A dot for each of `points`: `{label, value, doubt, hollow, text}`. */
export function Dots({ points, format, height = 150 }) {
  const [box, width] = useWidth();
  const marks = ticks(Math.max(...points.map(({ value, doubt }) => (value ?? 0) + doubt)));
  const y = scale(marks, height);
  const x = (i) => LEFT + ((width - LEFT) * (i + 0.5)) / points.length;
  return html`<div ref=${box}><svg class="drawn" width=${width} height=${height} role="img"
      aria-label=${points.map(({ text }) => text).join("; ")}>
    <${Axes} marks=${marks} y=${y} width=${width} format=${format} />
    ${points.map(({ label, value, doubt, hollow, text }, i) => html`
      <text x=${x(i)} y=${height - 4} text-anchor="middle">${label}</text>
      ${doubt > 0 && html`<line class="doubt" x1=${x(i)} x2=${x(i)} y1=${y(value + doubt)} y2=${y(Math.max(0, value - doubt))} />`}
      ${value > 0 && html`<circle class="dot ${hollow ? "hollow" : ""}" cx=${x(i)} cy=${y(value)} r="5"><title>${text}</title></circle>`}`)}
  </svg></div>`;
}

/** Stacked bars: `series` of `{name, values, colour}`, a bar for each of `labels`. */
export function Bars({ labels, series, format, label, height = 220 }) {
  const [box, width] = useWidth();
  const sums = labels.map((_, i) => series.reduce((sum, { values }) => sum + values[i], 0));
  const marks = ticks(Math.max(...sums));
  const y = scale(marks, height);
  const step = (width - LEFT) / labels.length;
  const x = (i) => LEFT + step * i;
  const every = Math.ceil(76 / step);
  return html`<div ref=${box}><svg class="drawn" width=${width} height=${height} role="img" aria-label=${label}>
    <${Axes} marks=${marks} y=${y} width=${width} format=${format} />
    ${labels.map((day, i) => {
      let below = 0;
      return html`<g>${i % every === 0 && html`<text x=${x(i) + step / 2} y=${height - 4}
          text-anchor=${i ? "middle" : "start"}>${day.slice(5)}</text>`}
        ${series.map(({ name, values, colour }) => {
          if (!values[i]) return null;
          below += values[i];
          return html`<rect class="c-${colour}" x=${x(i) + step * 0.12} width=${step * 0.76} y=${y(below)}
            height=${Math.max(0.5, y(below - values[i]) - y(below))}><title>${day}, ${name}: ${values[i].toFixed(2)} h</title></rect>`;
        })}</g>`;
    })}
  </svg></div>`;
}

/** `lines` of `{name, values, colour}` at the moments `at`. What is not known is a gap, and so is a
 * time longer than `gap` seconds without a moment. */
export function Lines({ at, begin, end, gap, lines, most, format, time, label, height = 150 }) {
  const [box, width] = useWidth();
  const marks = ticks(most);
  const y = scale(marks, height);
  const x = (moment) => LEFT + ((width - LEFT - 4) * (moment - begin)) / (end - begin);
  const step = [60, 120, 300, 600, 1200, 1800, 3600, 7200].find((each) => (end - begin) / each <= width / 75) ?? 14400;
  const first = Math.ceil((begin + step / 5) / step) * step;
  const hours = Array.from({ length: Math.max(0, Math.ceil((end - step / 5 - first) / step)) }, (_, i) => first + i * step);
  return html`<div ref=${box}><svg class="drawn" width=${width} height=${height} role="img" aria-label=${label}>
    <${Axes} marks=${marks} y=${y} width=${width} format=${format} />
    ${hours.map((moment) => html`<text x=${x(moment)} y=${height - 4} text-anchor="middle">${time(moment)}</text>`)}
    ${lines.map(({ values, colour }) => html`<path class="line l-${colour}" d=${path(at, values, gap, x, y)} />`)}
  </svg></div>`;
}

function path(at, values, gap, x, y) {
  let words = "", before = null;
  at.forEach((moment, i) => {
    if (!known(values[i])) { before = null; return; }
    const joined = before !== null && moment - before <= gap;
    words += `${joined ? "L" : "M"}${x(moment).toFixed(1)} ${y(values[i]).toFixed(1)}${joined ? "" : "h.1"}`; // alone: a dot
    before = moment;
  });
  return words;
}
