// Before anything is shown: who are you?

import { html, useState } from "../vendor/preact-htm.js";
import { send } from "../api.js";

export function Login({ notice, entered }) {
  const [error, setError] = useState(() => (location.search.includes("refused=code")
    ? "This address was used before, or is more than a minute old." : ""));
  const submit = async (event) => {
    event.preventDefault();
    try {
      await send("/login", { token: new FormData(event.target).get("token").trim() });
      entered();
    } catch (refused) {
      setError(refused.message);
    }
  };
  return html`<main class="login panel" id="main">
    <h1>epoch-scheduler</h1>
    ${notice && html`<p class="muted">${notice}</p>`}
    <p>At a terminal where the commands work, type</p>
    <pre class="command">scheduler-open</pre>
    <p>and open the address that it prints. It logs you in once, within a minute.</p>
    <form onSubmit=${submit}>
      <label class="field">Or paste your token
        <input name="token" type="password" autocomplete="off" required spellcheck=${false}
          aria-describedby=${error ? "login-error" : undefined} /></label>
      ${error && html`<p class="error" role="alert" id="login-error">${error}</p>`}
      <div><button class="primary">Log in</button></div>
    </form>
    <p class="muted small">You stay logged in for 12 hours at most. The token itself is not kept.</p>
  </main>`;
}
