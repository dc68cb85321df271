// Asks the gateway: JSON, ETags, errors as the commands print them, and the server's clock.

const TIMEOUT_MS = 30000;
const remembered = new Map(); // by address: the newest answer and its ETag
const REMEMBERED_MAX = 50;
const UNREACHABLE = { code: "unreachable", message: "cannot reach the gateway" };

/** The gateway's answer "no": one line that says why. */
export class Refused extends Error {
  constructor(status, { code = "", message, field = "" }) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

// --- the clock ----------------------------------------------------------------------------------

let offset = 0; // the server's clock minus this browser's, in seconds
let sharpness = Infinity; // how wrong the offset may be

/** Every moment comes from the server, so "3 min ago" is counted on its clock. */
export const now = () => Date.now() / 1000 + offset;

export const clockOffset = () => offset;

/** Takes the moment of an answer that was asked for and received at these local moments. */
function learnClock(moment, asked, received, resolution) {
  const doubt = (received - asked) / 2 + resolution;
  const seen = moment + resolution - (asked + received) / 2;
  if (doubt <= sharpness || Math.abs(seen - offset) > sharpness + doubt) {
    [offset, sharpness] = [seen, doubt];
  }
}

// --- requests -----------------------------------------------------------------------------------

export function address(path, query) {
  const given = Object.entries(query ?? {}).flatMap(([name, value]) =>
    [value].flat().filter((each) => each !== "" && each !== null && each !== undefined)
      .map((each) => [name, String(each)]));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export async function request(path, options = {}) {
  const asked = Date.now() / 1000;
  let answer;
  try {
    answer = await fetch(path, {
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...options,
    });
  } catch {
    throw new Refused(0, UNREACHABLE);
  }
  const date = Date.parse(answer.headers.get("Date")) / 1000;
  if (date) learnClock(date, asked, Date.now() / 1000, 0.5);
  if (answer.ok || answer.status === 304) return answer;
  throw new Refused(answer.status, await refusal(answer));
}

async function refusal(answer) {
  try {
    const { error } = await answer.json();
    if (error?.message) return error;
  } catch { /* not from the gateway itself */ }
  return { message: `the gateway answered ${answer.status}` };
}

/** The content of an answer, which may break off. */
async function content(answer, kind = "json") {
  try {
    return await answer[kind]();
  } catch {
    throw new Refused(0, UNREACHABLE);
  }
}

export const bytesOf = async (answer) => new Uint8Array(await content(answer, "arrayBuffer"));

/** The JSON at an address, which may be large. */
export const getOnce = async (path, query) => content(await request(address(path, query)));

/** The JSON at an address; unchanged answers are not transferred again. */
export async function get(path, query) {
  const url = address(path, query);
  const before = remembered.get(url);
  const answer = await request(url, before ? { headers: { "If-None-Match": before.etag } } : {});
  if (answer.status === 304) return before.body;
  const body = await content(answer);
  const etag = answer.headers.get("ETag");
  remembered.delete(url);
  if (etag) remembered.set(url, { etag, body });
  if (remembered.size > REMEMBERED_MAX) remembered.delete(remembered.keys().next().value);
  return body;
}

export async function send(path, body = {}, method = "POST") {
  const answer = await request(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return content(answer);
}

export const forgetAnswers = () => remembered.clear();
