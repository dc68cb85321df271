// What people write on jobs: a star, a note, and texts by keys of their own.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { send } from "./api.js";
import { Panel, Question, Text } from "./parts.js";
import { printable } from "./words.js";

const annotate = (id, annotations) => send(`/api/v1/jobs/${encodeURIComponent(id)}`, { annotations }, "PATCH");

/** A star that is set and taken away by a click, and shown before the answer has come. */
export function Star({ id, name, starred, failed = () => {} }) {
  const [shown, show] = useState(starred);
  useEffect(() => show(starred), [starred]);
  const turn = async () => {
    show(!shown);
    try {
      await annotate(id, { star: shown ? "" : "yes" });
    } catch (error) {
      show(shown);
      failed(error.message);
    }
  };
  return html`<button type="button" class="plain star ${shown ? "on" : ""}" aria-pressed=${shown} aria-label="star of ${printable(name)}"
    title=${shown ? "take the star away" : "give it a star"} onClick=${turn}>${shown ? "★" : "☆"}</button>`;
}

export function Annotations({ job, changed }) {
  const [asked, ask] = useState(null);
  const others = Object.entries(job.annotations).filter(([key]) => key !== "star");
  const act = async ({ key, value }) => (await annotate(job.id, { [key.trim()]: value.trim() })).text;
  const close = () => {
    ask(null);
    changed();
  };
  return html`<${Panel} title="Notes" end=${html`<button class="plain" onClick=${() => ask(others.length ? "" : "note")}>Write</button>`}>
    ${others.length ? html`<dl class="facts">${others.map(([key, value]) => html`<dt><${Text}>${key}<//></dt><dd>
      ${value.split("\n").map((line, i) => html`${i > 0 && html`<br />`}<${Text}>${line}<//>`)}
      <button class="plain small" aria-label="change ${printable(key)}" onClick=${() => ask(key)}>change</button></dd>`)}</dl>`
    : html`<p class="empty">nothing yet: a note is found in Experiments, too</p>`}
    ${asked !== null && html`<${Question} title=${asked === "" ? "Write on this job" : `Write: ${printable(asked)}`} verb="Write it" act=${act} close=${close}>
      <fieldset><label class="field">Key, e.g. note or paper<input name="key" required maxlength="100" defaultValue=${asked} readonly=${asked !== "" && asked in job.annotations} /></label>
        <label class="field">Text; none takes it away<textarea name="value" rows="4" maxlength="1000" defaultValue=${job.annotations[asked] ?? ""} /></label></fieldset><//>`}
  <//>`;
}
