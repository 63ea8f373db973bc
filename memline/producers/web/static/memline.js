// Everything works without this script. It asks again for the page every five seconds while it is looked at.
'use strict';

const isBusy = main => main.contains(document.activeElement) && document.activeElement.matches('input, select, button, summary')
  || main.querySelector('details[open]') || !document.getSelection().isCollapsed;

async function follow() {
  const main = document.querySelector('main[data-follow]');
  if (!main || document.hidden || isBusy(main)) return;
  try {
    const answer = await fetch(location.href, {credentials: 'same-origin'});
    if (answer.redirected) return location.reload();
    if (!answer.ok || isBusy(main)) return;
    const found = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main');
    // Of our own templates, where everything is escaped; the policy allows no script in it.
    if (found && found.innerHTML !== main.innerHTML) main.innerHTML = found.innerHTML;
  } catch {
    // The server is away: the next time asks again.
  }
}

setInterval(follow, 5000);
