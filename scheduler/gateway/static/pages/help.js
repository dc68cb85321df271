// What can be done from here, and the command that does the same.

import { html } from "../vendor/preact-htm.js";
import { Panel } from "../parts.js";

const PARTS = [
  ["Look", [
    ["What runs, what waits and why", html`<a href="/">Now</a>, <a href="/jobs">Jobs</a>`, "scheduler-state --all_users --cluster"],
    ["Everything about a job", "a click on its name", "scheduler-state JOB --extended"],
    ["What a job printed", html`its log, from the job's page`, "scheduler-get-logs JOB --follow"],
    ["What a job logs: its metrics", "on its page, as curves", "scheduler-metrics JOB --plot"],
    ["What differs between jobs", html`choose them in <a href="/experiments">Experiments</a>, then Compare`, "scheduler-compare JOB JOB"],
    ["What changes, as it changes", "every page does", "scheduler-state --watch"],
    ["The same for programs", html`<a href="/api/v1/openapi.json" target="_blank">the HTTP API</a>`, "scheduler-state --output json"],
  ]],
  ["Do", [
    ["Submit a job", "from a terminal only", "run-scheduler --script_path train.py --estimated_memory 4000 NAME"],
    ["Submit it again", "Resubmit, on the job's page", "scheduler-resubmit-job JOB"],
    ["Cancel at the end of the epoch, so that nothing is lost", "Cancel, on the job's page", "scheduler-cancel-job JOB --graceful"],
    ["Cancel several jobs", html`choose them in <a href="/jobs">Jobs</a>`, "scheduler-cancel-job --label sweep=7"],
    ["Let it wait, and go on later", "Hold and Release, on the job's page", "scheduler-update-job JOB --hold"],
    ["Give it a star, or write a note on it", "on the job's page, also after its end", "scheduler-update-job JOB --annotate note=TEXT"],
    ["Make it more urgent, or longer", "Change, on the job's page", "scheduler-update-job JOB --priority 10 --max_epochs 60"],
  ]],
  ["Understand", [
    ["How a training is heard that calls MLflow, wandb, TensorBoard or Telegraf", "without a changed line: its variables name what hears it", "run-scheduler … -- python train.py"],
    ["What a job has to do with its GPUs", "a bar is a GPU's memory; each coloured part is what a job was granted", "scheduler-state --cluster"],
    ["What a fault means", html`<a href="/cluster">Cluster</a>`, "scheduler-doctor"],
    ["Who you are here", "at the top right", "scheduler-open"],
  ]],
];

const Help = () => html`
  <div class="head"><h1>Help</h1><span class="muted">what you can do from here, and the command that does the same</span></div>
  <div class="help">
    ${PARTS.map(([title, rows]) => html`<${Panel} title=${title}><dl>${rows.map(([what, how, command]) => html`
      <dt>${what}</dt><dd><span class="muted">${how}</span><pre class="command">${command}</pre></dd>`)}</dl><//>`)}
    <${Panel} title="States"><dl class="facts">${[
      ["HELD", "waits until it is released"], ["QUEUED", "waits for GPUs; its reason says for which"],
      ["STARTING", "has its GPUs, its program has not reported yet"], ["RUNNING", "trains and reports"],
      ["STOPPING", "was asked to stop, and stops at the end of its epoch"],
      ["UNRESPONSIVE", "has not reported for two intervals"], ["FINISHED", "all its epochs are done"],
      ["FAILED", "ended by itself, and not well"], ["CANCELED", "ended by a person"],
      ["SKIPPED", "never ran: a job that it was to follow ended otherwise"],
    ].map(([state, text]) => html`<dt><span class="state ${state}">${state}</span></dt><dd>${text}</dd>`)}</dl><//>
  </div>`;

export default Help;
