// The frame: who is logged in, which page is shown, and whether what it shows still holds.

import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/preact-htm.js";
import { forgetAnswers, get, now, send } from "./api.js";
import { connect, disconnect, live, onSignedOut, sure, useLiveness, useTick, watch } from "./live.js";
import { Login } from "./pages/login.js";
import { Empty, Text } from "./parts.js";
import { go, useAddress } from "./router.js";
import { clock, printable } from "./words.js";

const PLACES = [["/", "Now"], ["/jobs", "Jobs"], ["/workflows", "Workflows"], ["/experiments", "Experiments"], ["/people", "People"], ["/cluster", "Cluster"], ["/help", "Help"]];

function App() {
  const [session, setSession] = useState(null); // null: not asked yet; false: logged out
  const [notice, setNotice] = useState("");
  const enter = async () => {
    try {
      const found = await get("/api/v1/session");
      if (location.pathname === "/login") go(wanted(), true);
      setNotice("");
      setSession(found);
      connect();
    } catch (error) {
      if (error.status === 401) setSession(false);
      else {
        setNotice(error.message);
        setTimeout(enter, 2000);
      }
    }
  };
  useEffect(() => {
    onSignedOut(() => leave("You are logged out. Log in again to go on."));
    enter();
    let wasSure = false;
    return watch((event) => {
      if (event) return;
      // A daemon that is back may have another version. The gateway remembers an answer for a minute.
      if (sure() && !wasSure && live.heard) [0, 61000].forEach((wait) => setTimeout(look, wait));
      wasSure = sure();
    });
  }, []);
  const look = () => get("/api/v1/session").then((found) => setSession((before) => before && found), () => {});
  const leave = (text) => {
    disconnect();
    forgetAnswers();
    setNotice(text);
    setSession(false);
  };
  const logOut = async () => {
    onSignedOut(() => leave(""));
    try {
      await send("/logout");
      leave("");
    } catch (error) {
      leave(`You may still be logged in: ${error.message}.`);
    }
  };
  if (session === null) return html`<main class="login panel"><h1>epoch-scheduler</h1>
    <p class="muted" role="status">${notice ? `${notice}; trying again` : "loading …"}</p></main>`;
  if (!session) return html`<${Login} notice=${notice} entered=${enter} />`;
  return html`<${Frame} session=${session} logOut=${logOut} />`;
}

/** Where a person wanted to go who had to log in first. */
function wanted() {
  const next = new URL(new URLSearchParams(location.search).get("next") ?? "/", location.origin);
  return next.origin === location.origin ? next.pathname + next.search : "/";
}

function Frame({ session, logOut }) {
  useLiveness();
  const { parts, query } = useAddress();
  const here = `/${parts[0] ?? ""}`;
  useEffect(() => {
    document.title = `${title(parts)} · epoch-scheduler`;
  }, [parts.join("/")]);
  return html`
    <a class="skip" href="#main">Skip to the page</a>
    <header class="top"><div>
      <a class="brand" href="/"><img src="/static/favicon.svg" alt="" />epoch-scheduler</a>
      <nav aria-label="pages">${PLACES.map(([path, label]) => html`
        <a href=${path} aria-current=${(here === "/compare" ? "/experiments" : here) === path ? "page" : undefined}>${label}</a>`)}</nav>
      <div class="who"><${Connection} /><span><${Text}>${session.user}<//>${session.admin && html`<span class="muted"> (admin)</span>`}</span>
        <button class="plain" onClick=${logOut}>Log out</button></div>
    </div></header>
    <${Trouble} session=${session} />
    <main id="main" tabindex="-1"><${Guarded} key=${parts.join("/")} parts=${parts} query=${query} /></main>`;
}

const title = (parts) => (parts[0] === "compare" ? "Compare" : parts[0] === "workflows" && parts[1] ? "Workflow" : parts[0] === "jobs" && parts[1] ? (parts[2] === "log" ? "Log" : "Job") : PLACES.find(([path]) => path === `/${parts[0] ?? ""}`)?.[1] ?? "Not found");

/** A mistake in one page must not take the others with it. */
function Guarded({ parts, query }) {
  const [error] = useErrorBoundary((mistake) => console.error(mistake));
  if (error) return html`<p class="error" role="alert">This page has a mistake: ${printable(error.message)}. Load it again.</p>`;
  return html`<${Page} parts=${parts} query=${query} />`;
}

const Nowhere = () => html`<div class="head"><h1>Not found</h1></div>
  <div class="panel"><div class="body"><${Empty}>There is no such page. <a href="/">Go to what happens now</a>.<//></div></div>`;

// Loaded when they are first shown: nobody waits for a page that is not looked at.
const PAGES = {
  "": () => import("./pages/now.js"),
  jobs: () => import("./pages/jobs.js"),
  job: () => import("./pages/job.js"),
  log: () => import("./pages/log.js"),
  compare: () => import("./pages/compare.js"),
  workflows: () => import("./pages/workflows.js"),
  experiments: () => import("./pages/experiments.js"),
  people: () => import("./pages/people.js"),
  cluster: () => import("./pages/cluster.js"),
  help: () => import("./pages/help.js"),
};
const loaded = new Map();

const pageOf = ([place = "", id, more]) => (place === "jobs" && id ? (more === "log" ? "log" : "job") : place);

function Page({ parts, query }) {
  const name = pageOf(parts);
  const [, redraw] = useState({});
  if (!Object.hasOwn(PAGES, name)) return html`<${Nowhere} />`;
  const Shown = loaded.get(name);
  if (Shown) return html`<${Shown} id=${parts[1]} query=${query} />`;
  PAGES[name]().then((module) => {
    loaded.set(name, module.default);
    redraw({});
  }, () => setTimeout(redraw, 2000, {}));
  return html`<p class="empty" role="status">loading …</p>`;
}

function Connection() {
  useLiveness();
  return html`<span class="live ${sure() ? "on" : live.heard ? "off" : ""}" role="status">${sure() ? "live" : live.open ? "daemon away" : "connecting …"}</span>`;
}

function Trouble({ session }) {
  useLiveness();
  useTick(1);
  const other = session.version !== session.gateway_version
    && `The daemon has version ${session.version || "unknown"}, the gateway ${session.gateway_version}`;
  const unknown = other && live.code === "unimplemented";
  if (sure() && other) return html`<div class="banner notice" role="status">${other}: some of this may be missing.</div>`;
  if (sure() || live.paused || !(live.heard || unknown)) return null;
  const what = unknown ? `${other}: it tells no events.` : live.open ? "The daemon does not answer." : "The gateway does not answer.";
  return html`<div class="banner trouble" role="alert">${what} Trainings are not affected.${live.heard && ` What you see was so at ${clock(live.heard, now())}.`}</div>`;
}

// While it is found out who asks, the page is fetched.
const first = pageOf(location.pathname.split("/").filter(Boolean));
if (Object.hasOwn(PAGES, first)) PAGES[first]().catch(() => {});
render(html`<${App} />`, document.getElementById("page"));
