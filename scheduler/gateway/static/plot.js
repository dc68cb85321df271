// Curves, drawn on a canvas: 50 of 2,000 points take two frames, where SVG would take ten.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { useWidth } from "./chart.js";
import { printable, short, shortMarks } from "./words.js";

const TOP = 8, RIGHT = 10, BOTTOM = 22, LEFT = 54;
const THICK_MAX = 12; // more curves are drawn as hair lines, which is several times as fast
const NEAR = 40; // pixels from the pointer to a curve that is meant
const ZOOM_LEAST = 5; // pixels

// --- scales -------------------------------------------------------------------------------------

const ALIKE = 1e-9; // relative: what differs by less is one value on an axis

const differ = (least, most) => most - least > ALIKE * Math.max(Math.abs(least), Math.abs(most));

/** Round numbers between two. */
export function ticksBetween(least, most, count = 5) {
  if (!differ(least, most)) return [least];
  const raw = (most - least) / count;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * unit).find((each) => each >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Powers of ten, or what is between them if there are few. */
export function ticksOfPowers(least, most, count = 5) {
  const [from, to] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const every = Math.max(1, Math.ceil((to - from) / count));
  const marks = to - from > 2 ? [1] : to - from > 1 ? [1, 3] : [1, 2, 5];
  const found = [];
  for (let power = from; power <= to; power += every) {
    for (const mark of marks) found.push(Number((mark * 10 ** power).toPrecision(12)));
  }
  const within = found.filter((each) => each >= least * 0.999 && each <= most * 1.001);
  return within.length > 1 ? within : ticksBetween(least, most, count);
}

/** A scale from `[least, most]` to `[begin, end]` pixels, and back. */
function scaleOf([least, most], log, begin, end) {
  const f = log ? Math.log10 : (value) => value;
  const [low, high] = [f(least), f(most)];
  const part = (end - begin) / (high - low || 1);
  const at = (value) => begin + (f(value) - low) * part;
  at.back = (pixel) => (log ? 10 ** (low + (pixel - begin) / part) : low + (pixel - begin) / part);
  at.marks = (log ? ticksOfPowers : ticksBetween)(least, most, Math.max(2, Math.floor(Math.abs(end - begin) / (begin > end ? 32 : 80))));
  return at;
}

/** The least and greatest of what is shown, or null. `within`: of these x. */
export function extent(curves, axis, log, within) {
  let [least, most] = [Infinity, -Infinity];
  for (const curve of curves) {
    const values = curve[axis];
    for (let i = 0; i < values.length; i += 1) {
      const value = values[i];
      if (within && !(curve.xs[i] >= within[0] && curve.xs[i] <= within[1])) continue;
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  if (least > most) return null;
  if (!differ(least, most)) return log ? [least / 2, most * 2] : [least - (Math.abs(least) || 1) / 10, most + (Math.abs(most) || 1) / 10];
  return [least, most];
}

function wider([least, most], log) {
  if (log) {
    const part = (most / least) ** 0.04;
    return [least / part, most * part];
  }
  return [least - (most - least) * 0.04, most + (most - least) * 0.04];
}

// --- drawing ------------------------------------------------------------------------------------

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Makes the canvas as sharp as the screen; returns its context, cleared. */
function cleared(canvas, width, height) {
  const sharp = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * sharp), Math.round(height * sharp)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(sharp, 0, 0, sharp, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function stroke(context, { xs, ys }, x, y) {
  context.beginPath();
  let open = false;
  for (let i = 0; i < xs.length; i += 1) {
    const [px, py] = [x(xs[i]), y(ys[i])];
    if (!Number.isFinite(px) || !Number.isFinite(py)) { open = false; continue; }
    if (open) context.lineTo(px, py);
    else {
      context.moveTo(px, py);
      context.lineTo(px + 0.1, py); // a point alone is a dot
    }
    open = true;
  }
  context.stroke();
}

function draw(context, { curves, width, height, x, y, formatX, opacity, thick }) {
  context.font = "11px system-ui, sans-serif";
  context.lineWidth = 1;
  context.strokeStyle = colourOf("--line");
  context.fillStyle = colourOf("--muted");
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.beginPath();
  const labels = shortMarks(y.marks);
  for (const [i, mark] of y.marks.entries()) {
    const at = Math.round(y(mark)) + 0.5;
    context.moveTo(LEFT, at);
    context.lineTo(width - RIGHT, at);
    context.fillText(labels[i], LEFT - 6, at);
  }
  context.stroke();
  context.textAlign = "center";
  let taken = -Infinity;
  for (const mark of x.marks) {
    const text = formatX(mark);
    const half = context.measureText(text).width / 2;
    const at = Math.min(width - half - 1, x(mark));
    if (at - half < taken + 8) continue;
    context.fillText(text, at, height - 8);
    taken = at + half;
  }
  context.save();
  context.beginPath();
  context.rect(LEFT - 1, TOP - 4, width - LEFT - RIGHT + 2, height - TOP - BOTTOM + 8);
  context.clip();
  context.lineJoin = "bevel";
  context.lineWidth = thick;
  for (const curve of curves) {
    context.globalAlpha = opacity * (curve.faint ? 0.3 : 1);
    context.strokeStyle = curve.colour;
    context.setLineDash(curve.dash ?? []);
    stroke(context, curve, x, y);
  }
  context.restore();
}

// --- the component ------------------------------------------------------------------------------

/**
 * `curves`: `{name, colour, dash, faint, raw, xs, ys}`, with xs in order; a NaN is a gap. What is `raw`
 * is drawn and not told of. `among`: those that have the same axes. `zoom`: which x are shown, or null for all; `onZoom`: is called when others
 * are chosen. `label`: for those who do not see it.
 */
export function Plot({ curves, among = curves, zoom, onZoom, logX, logY, opacity = 1, height = 240, formatX = short, label, unit = "" }) {
  const [box, width] = useWidth();
  const [below, above] = [useRef(), useRef()];
  const [told, tell] = useState("");
  const drag = useRef(null);
  const all = useMemo(() => extent(among, "xs", logX), [among, logX]);
  const shownX = zoom ?? all;
  const spread = useMemo(() => extent(among, "ys", logY, zoom), [among, logY, zoom?.[0], zoom?.[1]]);
  const x = shownX && scaleOf(shownX, logX, LEFT, width - RIGHT);
  const y = shownX && spread && scaleOf(wider(spread, logY), logY, height - BOTTOM, TOP);
  const thick = curves.length > THICK_MAX ? 1 : 1.6;
  const dark = useDark();
  const paint = () => {
    if (below.current && y) draw(cleared(below.current, width, height), { curves, width, height, x, y, formatX, opacity, thick });
  };
  useLayoutEffect(paint, [curves, width, height, logX, logY, opacity, dark, shownX?.[0], shownX?.[1], spread]);
  useLayoutEffect(() => { point(null); }, [curves, zoom]);

  /** Shows what is nearest to this place, and which x are being chosen. */
  const point = (at) => {
    if (!above.current) return;
    const context = cleared(above.current, width, height);
    const found = at && y && nearest(curves, x, y, at);
    if (drag.current?.moved) {
      context.fillStyle = colourOf("--focus");
      context.globalAlpha = 0.18;
      context.fillRect(drag.current.from, TOP, at.x - drag.current.from, height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
    if (found) {
      context.strokeStyle = context.fillStyle = found.curve.colour;
      context.lineWidth = 2.5;
      stroke(context, found.curve, x, y);
      context.beginPath();
      context.arc(found.x, found.y, 4, 0, 7);
      context.fill();
    }
    tell(found ? `${printable(found.curve.name)}: ${short(found.value)} at ${unit}${formatX(found.at)}` : "");
  };
  const place = (event) => {
    const { left, top } = above.current.getBoundingClientRect();
    return { x: Math.min(width - RIGHT, Math.max(LEFT, event.clientX - left)), y: event.clientY - top };
  };
  const cursor = useRef({ x: null, curve: 0 });
  const press = (event) => {
    const { key } = event;
    if (!y) return;
    const span = shownX.map(x);
    const at = cursor.current;
    const all = curves.filter(({ raw }) => !raw);
    at.x ??= (span[0] + span[1]) / 2;
    if (key === "ArrowLeft" || key === "ArrowRight") at.x = Math.min(span[1], Math.max(span[0], at.x + (key === "ArrowLeft" ? -1 : 1) * (span[1] - span[0]) / 100));
    else if (key === "ArrowUp" || key === "ArrowDown") at.curve = (at.curve + (key === "ArrowUp" ? all.length - 1 : 1)) % all.length;
    else if (key === "+" && onZoom) return onZoom([at.x - (at.x - span[0]) / 2, at.x + (span[1] - at.x) / 2].map(x.back));
    else if ((key === "-" || key === "Escape") && onZoom && zoom) return onZoom(null);
    else return;
    event.preventDefault();
    point({ x: at.x, only: all[at.curve % all.length] });
  };
  const up = (event) => {
    const began = drag.current;
    drag.current = null;
    const at = place(event);
    if (began?.moved) onZoom([began.from, at.x].sort((one, other) => one - other).map(x.back));
    point(at);
  };
  return html`<div class="plot" ref=${box} tabindex="0" role="group" aria-label=${label} onKeyDown=${press}
      onBlur=${() => point(null)} style=${{ height: `${height}px` }}>
    ${y ? html`<canvas ref=${below} aria-hidden="true" style=${{ width: `${width}px`, height: `${height}px` }} />
      <canvas ref=${above} aria-hidden="true" style=${{ width: `${width}px`, height: `${height}px` }}
        onPointerDown=${(event) => {
          if (!onZoom || event.button || event.pointerType === "touch") return;
          drag.current = { from: place(event).x, moved: false };
          above.current.setPointerCapture(event.pointerId);
        }}
        onPointerMove=${(event) => {
          const at = place(event);
          if (drag.current && Math.abs(at.x - drag.current.from) > ZOOM_LEAST) drag.current.moved = true;
          point(at);
        }}
        onPointerUp=${up} onPointerLeave=${() => drag.current || point(null)}
        onDblClick=${() => onZoom?.(null)} />` : html`<p class="empty">nothing to draw${logY || logX ? ": a logarithmic axis shows what is greater than 0" : ""}</p>`}
    <output class="told" role="status">${told}</output>
  </div>`;
}

/** The curve that is nearest to a place, and its point there; null: none is near. */
function nearest(curves, x, y, { x: px, y: py, only }) {
  let [best, distance] = [null, only ? Infinity : NEAR];
  for (const curve of only ? [only] : curves) {
    if (curve.raw) continue;
    const i = closest(curve.xs, x.back(px));
    for (let j = Math.max(0, i - 1); j <= Math.min(curve.xs.length - 1, i + 1); j += 1) {
      const [cx, cy] = [x(curve.xs[j]), y(curve.ys[j])];
      const far = only ? Math.abs(cx - px) : Math.hypot((cx - px) / 3, cy - py);
      if (far < distance) [best, distance] = [{ curve, at: curve.xs[j], value: curve.ys[j], x: cx, y: cy }, far];
    }
  }
  return best;
}

/** The index of the value that is closest, of values in order. */
export function closest(values, wanted) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}

/** Whether the person wants the page dark. */
export function useDark() {
  const [query] = useState(() => matchMedia("(prefers-color-scheme: dark)"));
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const listener = () => setDark(query.matches);
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
  }, []);
  return dark;
}
