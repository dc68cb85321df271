// The whole log of a job.

import { html } from "../vendor/preact-htm.js";
import { useLive } from "../live.js";
import { LogView } from "../logview.js";
import { JobLink, Loaded, State, jobPath } from "../parts.js";

export default function Log({ id, query }) {
  const touches = (event) => event.list_again || event.jobs?.some((job) => job.id === id);
  const answer = useLive(jobPath(id).replace("/jobs", "/api/v1/jobs"), null, touches);
  return html`<${Loaded} answer=${answer}>${({ job }) => html`
    <div class="head"><h1>Log of ${" "}<${JobLink} job=${job} /></h1><${State} state=${job.state} /></div>
    <div class="panel padded"><${LogView} job=${job} attempt=${query.attempt && Number(query.attempt)}
      rank=${query.rank && Number(query.rank)} /></div>`}<//>`;
}
