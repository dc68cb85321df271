// Which page an address shows. Links stay links: they can be copied, and opened in a new tab.

import { useEffect, useState } from "./vendor/preact-htm.js";

const listeners = new Set();
const told = () => listeners.forEach((listener) => listener());

addEventListener("popstate", told);

export function go(path, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  told();
}

/** Follows links of this page without loading it again. */
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || link.target || link.download) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.pathname.startsWith("/static/")) return;
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  go(link.pathname + link.search);
  scrollTo(0, 0);
  document.querySelector("main")?.focus();
});

/** The path's parts and the query of the address. */
export function useAddress() {
  const [, redraw] = useState({});
  useEffect(() => {
    const listener = () => redraw({});
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return {
    parts: location.pathname.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(location.search)),
  };
}

/** Each parameter of the address, as a list. */
export function listsInAddress() {
  const found = {};
  for (const [name, value] of new URLSearchParams(location.search)) (found[name] ??= []).push(value);
  return found;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
