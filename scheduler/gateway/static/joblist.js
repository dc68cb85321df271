// A list of jobs that stays true: loaded a page at a time, then changed by events.

import { useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Refused, get } from "./api.js";
import { sure, watch } from "./live.js";
import { ENDED } from "./words.js";

export const LIVE = ["HELD", "QUEUED", "STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE"];
export const ON_GPUS = ["STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE"];
export const STATES = [...LIVE, ...ENDED];
const AGAIN_MS = 1000;
const BEYOND_MS = 10000;
const MORE = 500; // jobs of each page after the first one

/** Whether a job belongs to the list, as the daemon decides it. */
export function matches(job, query) {
  const { state = [], user, project, experiment, label, search } = query;
  const states = [state].flat().filter(Boolean);
  if (states.length && !states.includes(job.state)) return false;
  if ((user && job.user !== user) || (project && job.project !== project)) return false;
  if (experiment && job.experiment !== experiment) return false;
  if (label) {
    const [key, ...value] = label.split("=");
    if (value.join("=") === "*" ? !(key in job.labels) : job.labels[key] !== value.join("=")) return false;
  }
  if (!search) return true;
  const wanted = search.toLowerCase();
  return [job.name, job.user, job.project, job.experiment, job.id]
    .some((each) => each.toLowerCase().includes(wanted));
}

/** Returns `{jobs, total, error, loading, more, reload}`; `more()` loads the next page. */
export function useJobs(query, limit) {
  const key = JSON.stringify([query, limit]);
  const [list, setList] = useState({ jobs: [], total: null, cursor: "", loading: true });
  const mine = useRef({});

  useEffect(() => {
    const state = { alive: true, busy: false, timer: null, pages: 1, again: "" };
    mine.current = state;
    setList((before) => ({ ...before, loading: true }));
    const ask = (cursor) => get("/api/v1/jobs", { all_users: "true", ...query, limit: cursor ? MORE : limit, cursor });

    const guarded = async (action) => {
      if (state.busy) return;
      state.busy = true;
      try {
        await action();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (state.alive) setList((before) => ({ ...before, error, loading: false }));
      }
      state.busy = false;
      if (state.again && state.alive) state.later(state.again);
    };
    state.load = () => guarded(async () => {
      const top = state.again === "top";
      state.again = "";
      let [jobs, cursor, total] = [[], "", 0];
      for (let page = 0; page < (top ? 1 : state.pages); page += 1) {
        const answer = await ask(cursor);
        if (!state.alive) return;
        jobs = jobs.concat(answer.jobs);
        [cursor, total] = [answer.next_cursor, answer.total];
        if (!cursor) break;
      }
      setList((before) => (top && state.pages > 1
        ? { ...before, jobs: unique(jobs.concat(before.jobs)), total, error: null }
        : { jobs: unique(jobs), total, cursor, error: null, loading: false }));
    });
    state.more = (cursor) => cursor && guarded(async () => {
      const answer = await ask(cursor);
      if (!state.alive) return;
      state.pages += 1;
      setList((before) => ({
        ...before,
        jobs: unique(before.jobs.concat(answer.jobs)),
        cursor: answer.next_cursor,
        total: answer.total,
      }));
    });
    // The newest jobs are on top: then loading the top is enough.
    const where = newestFirst(query) ? "top" : "all";
    state.later = (part = "all", wait = AGAIN_MS) => {
      if (state.again !== "all") state.again = part;
      state.timer ??= setTimeout(() => {
        state.timer = null;
        state.load();
      }, wait);
    };
    let wasSure = sure();
    const stop = watch((event) => {
      if (!event) {
        if (sure() && !wasSure) state.later();
        wasSure = sure();
        return;
      }
      if (event.list_again) state.later();
      if (!event.jobs?.length) return;
      setList((before) => {
        const after = patched(before, event.jobs, query);
        if (after.unknown) state.later(where);
        else if (after.beyond && query.state?.length) state.later(where, BEYOND_MS); // the total
        return after.list;
      });
    });
    state.load();
    return () => {
      state.alive = false;
      clearTimeout(state.timer);
      stop();
    };
  }, [key]);

  return {
    ...list,
    more: () => mine.current.more?.(list.cursor),
    reload: () => mine.current.load?.(),
  };
}

/** Of two records of a job, the first one counts. */
function unique(jobs) {
  const found = new Map();
  for (const job of jobs) if (!found.has(job.id)) found.set(job.id, job);
  return [...found.values()];
}

/** The list with these changed jobs; `unknown`: one belongs among them, and where must be asked;
 * `beyond`: one may belong into a part that is not loaded. */
export function patched(list, changed, query) {
  const news = new Map(changed.map((job) => [job.id, job]));
  let { total } = list;
  const jobs = [];
  for (const job of list.jobs) {
    const now = news.get(job.id);
    news.delete(job.id);
    if (!now) jobs.push(job);
    else if (matches(now, query)) jobs.push({ ...job, ...now });
    else total -= 1;
  }
  const last = list.cursor && newestFirst(query) ? list.jobs.at(-1)?.submitted_at ?? 0 : 0;
  const others = [...news.values()].filter((job) => matches(job, query));
  return {
    list: { ...list, jobs, total },
    unknown: others.some((job) => job.submitted_at >= last),
    beyond: others.length > 0,
  };
}

const newestFirst = ({ order, ascending }) => (!order || order === "submitted") && !ascending;
