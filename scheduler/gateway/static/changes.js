// The newest facts of all jobs and GPUs, as they happen.

import { html } from "./vendor/preact-htm.js";
import { now } from "./api.js";
import { nameOf, useFacts } from "./facts.js";
import { Empty, Text, jobPath } from "./parts.js";
import { clock, shortId } from "./words.js";

export function Changes({ limit = 25, about }) {
  const facts = useFacts(limit, about);
  if (!facts.length) return html`<div class="body"><${Empty}>nothing in the last minutes<//></div>`;
  return html`<ol class="list changes">${facts.map((fact) => html`<li key=${fact.number}>
    <time>${clock(fact.at, now())}</time>
    <span>${fact.job_id && html`<a href=${jobPath(fact.job_id)}><${Text}>${nameOf(fact.job_id) || shortId(fact.job_id)}<//></a>: `}
      <${Text}>${fact.text}<//></span></li>`)}</ol>`;
}
