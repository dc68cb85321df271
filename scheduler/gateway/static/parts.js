// What several pages show: names, states, messages, panels, and the question before an action.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { live, sure, useLiveness } from "./live.js";
import { ENDED, printable, shortId } from "./words.js";

/** Text of other users: what it contains is shown, not obeyed, and it cannot turn its neighbours. */
export const Text = ({ children }) => html`<bdi>${printable(children)}</bdi>`;

export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;

export const JobLink = ({ job }) => html`<a href=${jobPath(job.id)}
  >${job.name ? html`<${Text}>${job.name}<//>` : shortId(job.id)}</a>`;

/** The state, or what it was, if it is not known that it still holds. */
export function State({ state }) {
  useLiveness();
  if (sure() || ENDED.has(state)) return html`<span class="state ${state}">${state}</span>`;
  return html`<span class="state unsure" title="the scheduler is away: this was its last word"
    >was ${state}</span>`;
}

export const Panel = ({ title, note, end, children, body = true }) => html`
  <section class="panel">
    <header><h2>${title}</h2>${note && html`<span class="muted">${note}</span>`}
      ${end && html`<span class="end">${end}</span>`}</header>
    ${body ? html`<div class="body">${children}</div>` : children}
  </section>`;

/** Either what was loaded, or why it was not. Old data stay visible beside an error. */
export function Loaded({ answer, children }) {
  const trouble = answer.error && !(answer.error.status === 0 && !live.open && answer.data);
  return html`
    ${trouble && html`<p class="error" role="alert">${printable(answer.error.message)}</p>`}
    ${answer.data ? children(answer.data)
      : answer.loading && html`<p class="empty" role="status">loading …</p>`}`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Facts = ({ pairs }) => html`<dl class="facts">
  ${pairs.map(({ name, text }) => html`<dt><${Text}>${name}<//></dt><dd><${Text}>${text}<//></dd>`)}
</dl>`;

/**
 * Asks once, says what will happen, does it, and reports what the server answered.
 *
 * `act` gets the chosen values and returns the report, a line or several.
 */
export function Question({ title, verb, danger, act, close, children }) {
  const box = useRef();
  const [told, setTold] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    box.current.showModal();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const lines = await act(Object.fromEntries(new FormData(event.target)));
      setTold({ good: true, lines: [lines].flat() });
    } catch (error) {
      setTold({ good: false, lines: error.lines ?? [error.message] });
    }
    setBusy(false);
  };
  return html`<dialog ref=${box} onClose=${close} aria-label=${title}>
    <h2>${title}</h2>
    <form onSubmit=${submit}>
      ${!told?.good && children}
      ${told && html`<div class=${told.good ? "done" : "error"} role="status">
        ${told.lines.map((line) => html`<div>${typeof line === "string" ? html`<${Text}>${line}<//>` : line}</div>`)}</div>`}
      <div class="actions">
        <button type="button" onClick=${() => box.current.close()}
          >${told?.good ? "Close" : "No, go back"}</button>
        ${!told?.good && html`<button class=${danger ? "danger" : "primary"} disabled=${busy}
          >${busy ? "asking …" : verb}</button>`}
      </div>
    </form>
  </dialog>`;
}
