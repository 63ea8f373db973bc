"""The page at `/`: what a person wants to see of a running server, made in the browser from the API.

One file without parts of others. Text from the API is put in as text, never as HTML, and the policy in the
header allows nothing but this very script.
"""

from __future__ import annotations

import base64
import hashlib

from starlette.requests import Request
from starlette.responses import Response

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0 0 1.5rem; }
td, th { text-align: left; padding: .1rem 1.2rem .1rem 0; vertical-align: top; font-weight: normal; }
th { color: #666; } pre { white-space: pre-wrap; } .warning { color: #a00; }
input { font: inherit; padding: .2rem .4rem; } #query { width: 24rem; }
"""

_SCRIPT = """
const at = id => document.getElementById(id);
const make = (tag, text, name) => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
};
at('token').value = sessionStorage.getItem('token') || '';
async function ask(path) {
  const token = at('token').value;
  const answer = await fetch(path, token ? {headers: {Authorization: 'Bearer ' + token}} : {});
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error + (body.hint ? ' (' + body.hint + ')' : ''));
  return body;
}
function table(rows) {
  const made = document.createElement('table');
  for (const row of rows) {
    const line = made.insertRow();
    row.forEach((cell, number) => line.append(make(number ? 'td' : 'th', cell)));
  }
  return made;
}
function shown(status) {
  const rows = [
    ['notes', status.files + ' files, ' + status.chunks + ' chunks'],
    ['answers', status.mode + (status.model ? ', ' + status.provider + ' ' + status.model : '')],
    ['vectors', status.vectors.ready + ' ready, ' + status.vectors.wanted + ' to come, '
      + status.vectors.failed + ' failed'],
    ['behind', status.behind.files + ' files'],
  ];
  const parts = [make('h2', status.agentId), table(rows)];
  if (status.warning) parts.push(make('p', status.warning + '. ' + status.action, 'warning'));
  return parts;
}
function fleet(queues) {
  const rows = queues.queues.map(one =>
    [one.name, one.waiting + ' waiting, ' + one.inFlight + ' in flight, ' + one.dead + ' dead']);
  rows.push(['backlog', queues.backlog.wanted + ' texts'], ['', queues.workers.length + ' workers']);
  return [make('h2', 'queues'), table(rows)];
}
async function refresh() {
  try {
    const overview = await ask('/overview');
    const parts = overview.agents.flatMap(shown);
    if (overview.queues) parts.push(...fleet(overview.queues));
    at('state').replaceChildren(...parts);
  } catch (error) {
    at('state').replaceChildren(make('p', error.message, 'warning'));
  }
}
async function search(event) {
  event.preventDefault();
  try {
    const found = await ask('/search?query=' + encodeURIComponent(at('query').value));
    const parts = found.results.flatMap(hit =>
      [make('p', hit.score.toFixed(3) + '  ' + (hit.citation || hit.path)), make('pre', hit.snippet)]);
    for (const text of [found.notice, found.warning]) if (text) parts.push(make('p', text, 'warning'));
    at('hits').replaceChildren(...parts);
  } catch (error) {
    at('hits').replaceChildren(make('p', error.message, 'warning'));
  }
}
at('token').addEventListener('change', () => {
  sessionStorage.setItem('token', at('token').value);
  refresh();
});
at('ask').addEventListener('submit', search);
refresh();
setInterval(refresh, 5000);
"""

_PAGE = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Memline</title><style>{_STYLE}</style></head>
<body>
<h1>Memline</h1>
<p><label>Token, where one is needed: <input id="token" type="password" autocomplete="off"></label></p>
<form id="ask">
<input id="query" placeholder="a question to your notes" required> <button>search</button>
</form>
<div id="hits"></div>
<div id="state"></div>
<p>The API: <a href="/openapi.json">openapi.json</a></p>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_POLICY = (
    f"default-src 'none'; script-src 'sha256-{_digest(_SCRIPT)}'; style-src 'sha256-{_digest(_STYLE)}';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


async def page(_request: Request) -> Response:
    """The page itself; it holds no data, so it needs no token."""
    return Response(
        _PAGE,
        media_type="text/html",
        headers={
            "content-security-policy": _POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        },
    )
