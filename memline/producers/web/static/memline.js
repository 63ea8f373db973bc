// Everything works without this script. It follows the state by one stream of events, asks again for the parts
// of the page that changed, and copies commands and citations.
'use strict';

const page = document.body;
const waiting = new Set();
let stream = null;

function isBusy(part) {
  // What a user is about to choose, type or read stays.
  const selected = document.getSelection();
  return part.contains(document.activeElement) || part.querySelector('input:checked, details[open]')
    || (selected && !selected.isCollapsed && part.contains(selected.anchorNode));
}

async function swap(part) {
  const name = part.dataset.fragment;
  part.isOld = true;
  if (waiting.has(name) || isBusy(part)) return;
  waiting.add(name);
  try {
    const answer = await fetch(location.href, {headers: {'Memline-Fragment': name}, credentials: 'same-origin'});
    if (answer.status === 401) location.reload();
    if (!answer.ok) return;
    const text = await answer.text();
    if (isBusy(part)) return;
    // Of our own templates, where everything is escaped; the policy allows no script in it.
    part.innerHTML = text;
    part.isOld = false;
    prepare(part);
  } catch {
    // The next event tries again.
  } finally {
    waiting.delete(name);
  }
}

function follow() {
  if (stream || document.hidden || !page.dataset.events) return;
  stream = new EventSource(page.dataset.events);
  const mark = document.querySelector('[data-live]');
  stream.onopen = () => { mark.hidden = false; };
  stream.onerror = () => { mark.hidden = true; };
  stream.onmessage = event => {
    const {topics, figures} = JSON.parse(event.data);
    for (const shown of document.querySelectorAll('[data-figure]')) {
      const text = figures[shown.dataset.figure];
      if (text !== undefined && shown.textContent !== text) shown.textContent = text;
    }
    for (const part of document.querySelectorAll('[data-fragment]')) {
      const mine = (part.dataset.topics || '').split(' ');
      if (part.isOld || topics.some(topic => mine.includes(topic))) swap(part);
    }
  };
}

function rest() {
  if (stream) stream.close();
  stream = null;
}

function prepare(part) {
  if (!navigator.clipboard) return;
  for (const button of part.querySelectorAll('[data-copy]')) button.hidden = false;
}

document.addEventListener('visibilitychange', () => document.hidden ? rest() : follow());
addEventListener('pagehide', rest);
addEventListener('pageshow', follow);
document.addEventListener('click', async event => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = before; }, 1500);
});
prepare(document);
follow();
