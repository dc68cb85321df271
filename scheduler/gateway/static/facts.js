// Facts since the page was opened, and some from before it.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { watch } from "./live.js";

const KEPT = 200;
let kept = []; // newest first
let asked = null;
const listeners = new Set();
const names = new Map(); // of jobs, by id
const NAMES_MAX = 5000;

export const nameOf = (id) => names.get(id);

function learn(jobs) {
  for (const job of jobs) names.set(job.id, job.name);
  for (const id of names.keys()) {
    if (names.size <= NAMES_MAX) break;
    names.delete(id);
  }
}

/** Facts name jobs by their ids. */
async function learnNames(facts) {
  const unknown = [...new Set(facts.map((fact) => fact.job_id))].filter((id) => id && !names.has(id));
  if (!unknown.length) return;
  const { jobs } = await get("/api/v1/jobs", { all_users: "true", id: unknown.slice(0, 100), limit: 100 });
  learn(jobs);
  listeners.forEach((listener) => listener());
}

function add(facts) {
  const numbers = new Set(kept.map((fact) => fact.number));
  kept = [...facts.filter((fact) => !numbers.has(fact.number)), ...kept]
    .sort((one, other) => other.number - one.number).slice(0, KEPT);
  listeners.forEach((listener) => listener());
  if (listeners.size) learnNames(facts).catch(() => {}); // then their ids are shown
}

watch((event) => {
  learn(event?.jobs ?? []);
  if (event?.facts?.length) add(event.facts);
});

export function useFacts(limit, about = () => true) {
  const [, redraw] = useState({});
  useEffect(() => {
    const listener = () => redraw({});
    listeners.add(listener);
    asked ??= get("/api/v1/facts", { limit: KEPT / 2 }).then(({ facts }) => add(facts), () => { asked = null; });
    return () => listeners.delete(listener);
  }, []);
  return kept.filter(about).slice(0, limit);
}
