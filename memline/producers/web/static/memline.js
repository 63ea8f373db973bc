// Everything works without this script. It follows the state by one stream of events, asks again for the parts
// of the page that changed, and copies commands and citations.
'use strict';

const page = document.body;
const waiting = new Set();
// What ends the connection to the stream; null without one.
let leave = null;
// Whether the stream was open, and was lost since.
let [wasOpen, isLost] = [false, false];

function isBusy(part) {
  // What a user is about to choose, type or read stays.
  const selected = document.getSelection();
  return part.contains(document.activeElement) || part.querySelector('input:checked, details[open]')
    || (selected && !selected.isCollapsed && part.contains(selected.anchorNode));
}

function sayFrozen(part) {
  const isFrozen = Boolean(part.querySelector('input:checked, details[open]'));
  let said = part.previousElementSibling;
  if (!said || !said.dataset.frozen) {
    if (!isFrozen) return;
    part.insertAdjacentHTML('beforebegin', '<p class="notice" data-frozen="1" role="status"><span></span> <button type="button" class="plain">follow again</button></p>');
    said = part.previousElementSibling;
    said.querySelector('button').addEventListener('click', () => {
      for (const box of part.querySelectorAll('input:checked')) box.checked = false;
      for (const open of part.querySelectorAll('details[open]')) open.open = false;
      said.remove();
      swap(part);
    });
  }
  const count = part.querySelectorAll('input:checked').length;
  said.firstChild.textContent = count ? `Paused while ${count} ${count === 1 ? 'is' : 'are'} chosen.` : 'Paused while something in it is open.';
  said.hidden = !isFrozen;
  if (!isFrozen && part.isOld) swap(part);
}

async function swap(part) {
  const name = part.dataset.fragment;
  part.isOld = true;
  // A hidden tab asks for nothing.
  if (document.hidden || waiting.has(name)) return;
  sayFrozen(part);
  if (isBusy(part)) return;
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

function refresh(topics = []) {
  for (const part of document.querySelectorAll('[data-fragment]')) {
    const mine = (part.dataset.topics || '').split(' ');
    if (part.isOld || topics.some(topic => mine.includes(topic))) swap(part);
  }
}

function showStatus(status) {
  const strip = document.getElementById('status');
  if (!strip) return;
  const [counts, rest] = [strip.querySelector('[role=status]'), strip.querySelector('[data-rest]')];
  const isRead = rest.contains(document.activeElement) && document.activeElement.dataset.code;
  const isOpened = Boolean(rest.querySelector('details[open]'));
  strip.dataset.problems = status.problems;
  strip.dataset.warnings = status.warnings;
  // Read aloud when it changes, so only then.
  if (strip.counts !== status.counts) counts.innerHTML = strip.counts = status.counts;
  if (strip.rest !== status.rest) {
    rest.innerHTML = strip.rest = status.rest;
    const details = rest.querySelector('details');
    if (details) details.open = isOpened;
    if (isRead) rest.querySelector(`[data-code="${isRead}"]`)?.focus();
  }
  document.title = (status.words ? `${status.words} · ` : '') + page.dataset.title;
  const icon = document.querySelector('link[rel=icon]');
  if (icon.getAttribute('href') !== status.icon) icon.href = status.icon;
}

function take({isOpen, topics, figures, status}) {
  const mark = document.querySelector('[data-live]');
  if (isOpen !== undefined) {
    mark.hidden = false;
    mark.textContent = isOpen ? 'live' : 'not live';
    mark.classList.toggle('lost', !isOpen);
    // Nobody told of what changed in between.
    if (isOpen && isLost) for (const part of document.querySelectorAll('[data-fragment]')) part.isOld = true;
    if (isOpen && isLost) refresh();
    [wasOpen, isLost] = [wasOpen || isOpen, wasOpen && !isOpen];
  }
  if (status) showStatus(status);
  for (const shown of figures ? document.querySelectorAll('[data-figure]') : []) {
    const text = figures[shown.dataset.figure];
    if (text !== undefined && shown.textContent !== text) shown.textContent = text;
  }
  if (topics) refresh(topics);
}

function follow() {
  if (leave || !page.dataset.events) return;
  if (window.SharedWorker) {
    const {port} = new SharedWorker(page.dataset.shared, {name: page.dataset.events});
    port.onmessage = event => take(event.data);
    // The state of a page is at most this much older than the page.
    port.postMessage({drawn: performance.timeOrigin - 2000});
    leave = () => { port.postMessage({bye: true}); port.close(); };
  } else if (!document.hidden) {
    // A stream of its own, while it is looked at: a browser has few connections.
    const stream = new EventSource(page.dataset.events);
    stream.onopen = () => take({isOpen: true});
    stream.onerror = () => take({isOpen: false});
    stream.onmessage = event => take(JSON.parse(event.data));
    leave = () => stream.close();
  }
}

function showAges() {
  // In the words of the server (span in words.py).
  for (const shown of document.querySelectorAll('time[datetime]')) {
    const s = Math.max(0, (Date.now() - Date.parse(shown.dateTime)) / 1000);
    const days = Math.round(s / 86400);
    const words = s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min`
      : s < 129600 ? `${(s / 3600).toFixed(1)} h` : `${days} day${days === 1 ? '' : 's'}`;
    if (shown.textContent !== `${words} ago`) shown.textContent = `${words} ago`;
  }
}

function rest() {
  if (leave) leave();
  leave = null;
}

function prepare(part) {
  if (!navigator.clipboard) return;
  for (const button of part.querySelectorAll('[data-copy]')) button.hidden = false;
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) { follow(); refresh(); } else if (!window.SharedWorker) rest();
});
addEventListener('pagehide', rest);
addEventListener('pageshow', follow);
for (const name of ['change', 'toggle']) {
  document.addEventListener(name, event => {
    const part = event.target.closest('[data-fragment]');
    if (part) sayFrozen(part);
  }, true);
}
document.addEventListener('click', async event => {
  for (const menu of document.querySelectorAll('nav details[open]')) if (!menu.contains(event.target)) menu.open = false;
  const all = event.target.closest('[data-select]');
  if (all) {
    event.preventDefault();
    for (const box of all.closest('form').querySelectorAll('input[type=checkbox]')) box.checked = true;
    sayFrozen(all.closest('[data-fragment]'));
    return;
  }
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = before; }, 1500);
});
prepare(document);
follow();
setInterval(() => { if (!document.hidden) showAges(); }, 10000);
