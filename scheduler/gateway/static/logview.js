// A job's log: the end of it as it grows, or any place of it, however large the file is.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { pieces, plain } from "./ansi.js";
import { Refused, address, bytesOf, get, request } from "./api.js";
import { live as lively, sure, watch } from "./live.js";
import { LogWindow, find } from "./logwindow.js";
import { Empty, Text } from "./parts.js";
import { live, number, percent } from "./words.js";

const ROW = 18; // pixels, as in style.css
const BEYOND = 30; // rows drawn above and below what is visible
const NEAR = 600; // pixels from an end at which more is loaded

export function LogView({ job, short = false, attempt, rank }) {
  const [chosen, choose] = useState({ attempt, rank });
  const [files, setFiles] = useState(null);
  const [error, setError] = useState("");
  const path = `/api/v1/jobs/${encodeURIComponent(job.id)}/log`;
  useEffect(() => {
    let gone = false;
    get(path, { list: "true", length: 1 }).then(
      (found) => gone || setFiles(found),
      (refused) => gone || setError(refused.message),
    );
    return () => { gone = true; };
  }, [job.id, job.attempt, job.state]);
  if (error) return html`<div class="body"><p class="error">${error}</p></div>`;
  if (!files) return html`<div class="body"><${Empty}>loading …<//></div>`;
  if (!files.files.length) return html`<div class="body"><${Empty}>${files.note || "no output yet"}<//></div>`;
  const newest = files.files.reduce((one, other) => (other.attempt > one.attempt ? other : one));
  const shown = { attempt: chosen.attempt ?? newest.attempt, rank: chosen.rank ?? 0 };
  return html`<${File} key=${`${job.id} ${shown.attempt} ${shown.rank}`} path=${path} job=${job} shown=${shown}
    files=${files.files} choose=${choose} short=${short} />`;
}

/** `{data, size, gaps}` of a file: see LogWindow. */
const reader = (path, { attempt, rank }) => async (offset, length) => {
  const answer = await request(address(path, { attempt, rank, offset, length: Math.max(1, length) }));
  const gaps = answer.headers.get("Log-Gaps")?.split(" ").filter(Boolean);
  return {
    data: await bytesOf(answer),
    size: Number(answer.headers.get("Log-Size")),
    gaps: gaps?.map((gap) => gap.split("+").map(Number)) ?? [],
  };
};

function File({ path, job, shown, files, choose, short }) {
  const box = useRef();
  const log = useRef(null);
  const busy = useRef(null);
  const follow = useRef(true);
  const shift = useRef(0); // rows that were added above: what is read must not move
  const [, redraw] = useState({});
  const [error, setError] = useState("");
  const [view, setView] = useState({ top: 0, height: 600 });
  log.current ??= new LogWindow(reader(path, shown));

  // One after the other. What a person asks for waits for its turn, the rest comes again by itself.
  const guarded = (action, asked = false) => {
    if (busy.current && !asked) return busy.current;
    const before = busy.current;
    const mine = (async () => {
      await before;
      try {
        await action();
        setError("");
      } catch (refused) {
        if (!(refused instanceof Refused)) throw refused;
        if (lively.open) setError(refused.message);
      }
      if (busy.current === mine) busy.current = null;
      redraw({});
    })();
    busy.current = mine;
    return mine;
  };
  const grow = () => guarded(async () => {
    const added = await log.current.down();
    if (added) shift.current -= added.dropped;
  });
  const goEnd = () => guarded(async () => {
    follow.current = true;
    await log.current.openEnd();
  }, true);
  const goTo = (offset) => guarded(async () => {
    follow.current = false;
    await log.current.openAt(offset);
    const before = await log.current.up();
    box.current.scrollTop = 0;
    shift.current = before?.added ?? 0;
  }, true);

  useEffect(() => {
    goEnd();
    return watch((event) => {
      if (follow.current && (event ? event.logs?.includes(job.id) || event.jobs?.some((each) => each.id === job.id) : sure())) grow();
    });
  }, []);
  useEffect(() => {
    // The output of a training makes no events: while it grows, its end is asked for.
    const timer = setInterval(() => follow.current && live(job) && sure() && !document.hidden && grow(), 1000);
    return () => clearInterval(timer);
  }, [job.state]);
  useLayoutEffect(() => {
    const measure = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const { lines } = log.current;
    if (follow.current) box.current.scrollTop = lines.length * ROW;
    else if (shift.current) box.current.scrollTop += shift.current * ROW;
    shift.current = 0;
  });

  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const below = scrollHeight - scrollTop - clientHeight;
    follow.current = below < 4 && log.current.complete;
    setView({ top: scrollTop, height: clientHeight });
    if (scrollTop < NEAR && log.current.start > 0) {
      guarded(async () => {
        const added = await log.current.up();
        if (added) shift.current += added.added;
      });
    } else if (below < NEAR && !log.current.complete) grow();
  };

  const [search, setSearch] = useState({ regex: null, text: "", told: "", at: null });
  const { lines, size, start } = log.current;
  const first = Math.max(0, Math.floor(view.top / ROW) - BEYOND);
  const last = Math.min(lines.length, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  const attempts = [...new Set(files.map((file) => file.attempt))].sort((one, other) => one - other);
  const ranks = files.filter((file) => file.attempt === shown.attempt).map((file) => file.rank);
  return html`
    ${!short && html`<div class="body"><div class="filters">
      <label>Attempt<select value=${shown.attempt} onChange=${(event) => choose({ attempt: Number(event.target.value), rank: 0 })}>
        ${attempts.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Rank<select value=${shown.rank} onChange=${(event) => choose({ ...shown, rank: Number(event.target.value) })}>
        ${ranks.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <${Search} log=${log.current} search=${search} setSearch=${setSearch} goTo=${goTo} start=${lines[Math.floor(view.top / ROW)]?.at ?? 0} />
      <label class="place">Place<input type="range" min="0" max=${Math.max(1, size)} value=${lines[Math.floor(view.top / ROW)]?.at ?? 0}
        aria-valuetext=${percent(size ? start / size : 0)} onChange=${(event) => goTo(Number(event.target.value))} /></label>
      <span class="together"><button onClick=${() => goTo(0)}>Beginning</button>
        <button onClick=${goEnd}>End</button></span>
    </div>
    <p class="muted small" role="status">${number(size)} bytes${follow.current && live(job) ? ", following" : ""}${search.told && ` · ${search.told}`}</p></div>`}
    ${error && html`<div class="body"><p class="error" role="alert"><${Text}>${error}<//></p></div>`}
    <div class="log ${short ? "short" : ""}" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-live="off"
        aria-label="output of attempt ${shown.attempt}, rank ${shown.rank}">
      <div style=${{ height: `${lines.length * ROW}px` }} />
      <div class="lines" style=${{ top: `${first * ROW}px` }}>
        ${lines.slice(first, last).map((line) => html`<${Line} key=${line.at} line=${line} search=${search} />`)}
      </div>
    </div>`;
}

function Line({ line, search }) {
  if (line.gap) return html`<div class="row tag">(${number(line.end - line.at)} bytes were not kept)</div>`;
  const { pieces: found, overwritten, cut } = pieces(line.text);
  const hit = search.regex?.test(plain(line.text)) ? (search.at === line.at ? "at" : "hit") : "";
  return html`<div class="row ${hit}" data-at=${line.at}>${found.map(({ text, name }) => (
    name ? html`<span class=${name}>${text}</span>` : text))}${
    overwritten > 0 && html`<span class="tag"> (rewritten ${overwritten} times)</span>`}${
    cut > 0 && html`<span class="tag"> (${number(cut)} more characters)</span>`}</div>`;
}

function Search({ log, search, setSearch, goTo, start }) {
  const stop = useRef(false);
  const [busy, setBusy] = useState(false);
  const run = async (backwards) => {
    let regex;
    try {
      regex = new RegExp(search.text, "iu");
    } catch {
      setSearch({ ...search, regex: null, told: "this is not a regular expression" });
      return;
    }
    if (!search.text) return;
    stop.current = false;
    setBusy(true);
    const tell = (told) => setSearch((before) => ({ ...before, regex, told }));
    const found = log.lines.find((line) => line.at === search.at);
    const from = backwards ? search.at ?? start : found?.end ?? start;
    try {
      const look = (begin) => find(log.read, log.size, begin, (text) => regex.test(plain(text)), backwards, (part) => {
        tell(`searching: ${percent(part)}`);
        return !stop.current;
      });
      const here = await look(from);
      const at = here ?? (stop.current ? null : await look(backwards ? log.size : 0)); // from the other end
      if (at === null) tell(stop.current ? "stopped" : "no line matches");
      else {
        const where = here === null ? `, from the ${backwards ? "end" : "beginning"} again` : "";
        setSearch((before) => ({ ...before, regex, at, told: `found at byte ${number(at)}${where}` }));
        await goTo(at);
      }
    } catch (refused) {
      tell(refused.message);
    }
    setBusy(false);
  };
  return html`<form class="wide" role="search" onSubmit=${(event) => { event.preventDefault(); run(false); }}>
    <label>Search (regular expression)<span class="together">
      <input type="search" value=${search.text} onInput=${(event) => setSearch({ regex: null, at: null, told: "", text: event.target.value })} />
      ${busy ? html`<button type="button" onClick=${() => { stop.current = true; }}>Stop</button>`
        : html`<button type="button" aria-label="search backwards" onClick=${() => run(true)}>↑</button>
          <button aria-label="search forwards">↓</button>`}</span></label>
  </form>`;
}
