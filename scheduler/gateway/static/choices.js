// A list to choose from, behind a button: of columns, of metrics.

import { html, useRef, useState } from "./vendor/preact-htm.js";
import { Text } from "./parts.js";
import { number } from "./words.js";

const LISTED = 40; // before a part of a name is typed

/** `known`: `{name, about}`; `change`: gets the names that are chosen then, or null for "choose for me". */
export function Choices({ label, known, chosen, change, hint }) {
  const box = useRef();
  const [first, setFirst] = useState(() => new Set()); // those that were chosen when it was opened are on top
  const [wanted, want] = useState("");
  const names = new Set(chosen);
  const open = () => {
    setFirst(names);
    want("");
    box.current.showModal();
  };
  const matching = known.filter(({ name }) => name.toLowerCase().includes(wanted.toLowerCase()));
  const listed = [...matching].sort((one, other) => first.has(other.name) - first.has(one.name)).slice(0, LISTED);
  const toggle = (name) => change(names.has(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return html`<div class="field"><span aria-hidden="true">${label}</span>
    <button type="button" aria-label="${label}: ${chosen.length} of ${known.length}" onClick=${open}>${chosen.length} of ${known.length} …</button>
    <dialog ref=${box} aria-label=${label}><h2>${label}</h2>
      <label class="field">Find<input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} placeholder=${hint} /></label>
      <ul class="choices">${listed.map(({ name, about }) => html`<li key=${name}><label class="choice">
        <input type="checkbox" checked=${names.has(name)} onChange=${() => toggle(name)} />
        <span><${Text}>${name}<//> <span class="muted small">${about}</span></span></label></li>`)}</ul>
      ${matching.length > listed.length && html`<p class="muted small">and ${number(matching.length - listed.length)} more: type a part of the name</p>`}
      <div class="actions"><button type="button" onClick=${() => change(null)}>Choose for me</button>
        <button type="button" class="primary" onClick=${() => box.current.close()}>Done</button></div>
    </dialog></div>`;
}
