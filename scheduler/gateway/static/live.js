// What happens now: one stream of events for the whole page. Pages load again what an event touches.
//
// The browser resumes the stream itself after an interruption, with the number of the last event.

import { useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Refused, get, now, request } from "./api.js";

const SOON_MS = 150; // events come in groups
const REST = 8; // between two loads, at least so many times as long as the last one took
const REST_MIN_MS = 1000;
const RETRY_MS = 3000;
const HIDDEN_MS = 20000; // a browser has few connections: a page that nobody sees gives its own back

/** `open`: events arrive. `daemon`: whether it was reached last, or null; `code`: why not. */
export const live = { open: false, daemon: null, code: "", heard: null, paused: false };
const watchers = new Set(); // functions called with each event
let stream = null;

function changed(changes) {
  if (sure()) live.heard = now();
  Object.assign(live, changes);
  watchers.forEach((watcher) => watcher(null));
}

/** True if what was heard last still holds: only then may anything be said to run. */
export const sure = () => live.open && live.daemon !== false;

export function connect() {
  if (stream) return;
  stream = new EventSource("/events");
  stream.onopen = () => changed({ open: true });
  stream.onerror = () => {
    changed({ open: false });
    if (stream?.readyState === EventSource.CLOSED) { // refused: the browser does not try again
      disconnect();
      setTimeout(async () => {
        try {
          await request("/api/v1/session");
        } catch (error) {
          if (error.status === 401) return signedOut();
        }
        connect();
      }, RETRY_MS);
    }
  };
  stream.onmessage = (message) => {
    const event = JSON.parse(message.data);
    watchers.forEach((watcher) => watcher(event));
  };
  stream.addEventListener("daemon", (message) => {
    const { state, code } = JSON.parse(message.data);
    changed({ daemon: state === "here", code });
  });
}

export function disconnect() {
  stream?.close();
  stream = null;
  live.open = false;
}

let hiding = null;

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      if (!stream) return;
      disconnect();
      changed({ paused: true });
    }, HIDDEN_MS);
  } else if (live.paused) {
    changed({ paused: false });
    connect();
  }
});

/** Replaced by the frame: shows the login page. */
let signedOut = () => {};
export const onSignedOut = (action) => { signedOut = action; };

/** Draws a component again when the connection comes or goes. */
export function useLiveness() {
  const [, redraw] = useState({});
  useEffect(() => watch((event) => event || redraw({})), []);
  return live;
}

export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/**
 * What an address has to say, loaded again when an event touches it.
 *
 * Returns `{data, error, loading, reload}`. Data stay while they are loaded again. Loads never
 * overlap, and a busy scheduler makes them rarer, not the browser busier. `keeps`: data stay also when
 * `keys` change, until there are others.
 */
export function useLoaded(load, keys, touches = () => true, restMs = REST_MIN_MS, keeps = false) {
  const [answer, setAnswer] = useState({ data: null, error: null, loading: true });
  const current = useRef({});
  useEffect(() => {
    const mine = { timer: null, busy: false, again: false, rest: restMs, ended: 0 };
    current.current = mine;
    setAnswer((before) => ({ data: keeps ? before.data : null, error: null, loading: true }));

    const run = async () => {
      [mine.timer, mine.busy, mine.again] = [null, true, false];
      const began = performance.now();
      let result;
      try {
        result = { data: await load(), error: null, loading: false };
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (error.status === 401) signedOut();
        result = { error, loading: false };
      }
      if (current.current !== mine) return;
      mine.busy = false;
      mine.ended = performance.now();
      mine.rest = Math.max(restMs, REST * (mine.ended - began));
      setAnswer((before) => ({ ...before, ...result }));
      if (mine.again) mine.schedule();
    };
    mine.schedule = () => {
      if (mine.busy) mine.again = true;
      else if (!mine.timer) {
        const wait = Math.max(SOON_MS, mine.ended + mine.rest - performance.now());
        mine.timer = setTimeout(run, mine.ended ? wait : 0);
      }
    };
    let wasSure = sure();
    const stop = watch((event) => {
      if (event ? touches(event) : sure() && !wasSure) mine.schedule();
      if (!event) wasSure = sure();
    });
    mine.run = run;
    run();
    return () => {
      stop();
      clearTimeout(mine.timer);
      current.current = {};
    };
  }, keys);
  return { ...answer, reload: () => current.current.busy || current.current.run?.() };
}

export const useLive = (path, query, touches, restMs) =>
  useLoaded(() => get(path, query), [path, JSON.stringify(query ?? null)], touches, restMs);

/** Draws again each `seconds`, for texts such as "3 min ago". Asks the server for nothing. */
export function useTick(seconds = 1) {
  const [, redraw] = useState({});
  useEffect(() => {
    const timer = setInterval(() => document.hidden || redraw({}), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
