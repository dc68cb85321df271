// Facts since the page was opened, and some from before it.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { watch } from "./live.js";

const KEPT = 200;
let kept = []; // newest first
let asked = null;
const listeners = new Set();

function add(facts) {
  const numbers = new Set(kept.map((fact) => fact.number));
  kept = [...facts.filter((fact) => !numbers.has(fact.number)), ...kept]
    .sort((one, other) => other.number - one.number).slice(0, KEPT);
  listeners.forEach((listener) => listener());
}

watch((event) => event?.facts?.length && add(event.facts));

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
