// A shared worker: one stream of events for all tabs of a browser. Its name is the address of the stream.
'use strict';

const tabs = new Set();
const figures = {};
// Topic -> when it changed last, for tabs that were drawn before that and connected after it.
const changed = new Map();
let status = null;
let isOpen = false;

function tell(message) {
  for (const tab of tabs) tab.postMessage(message);
}

function follow() {
  const stream = new EventSource(self.name);
  stream.onopen = () => { isOpen = true; tell({isOpen}); };
  stream.onerror = () => {
    isOpen = false;
    tell({isOpen});
    // Refused: the session ended, or too many browsers watch.
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  };
  stream.onmessage = event => {
    const news = JSON.parse(event.data);
    Object.assign(figures, news.figures);
    if (news.status) status = news.status;
    for (const topic of news.topics) changed.set(topic, Date.now());
    tell(news);
  };
}

self.onconnect = event => {
  const tab = event.ports[0];
  tab.onmessage = ({data}) => {
    if (data.bye) { tabs.delete(tab); return; }
    tabs.add(tab);
    const topics = [...changed.keys()].filter(topic => changed.get(topic) > data.drawn);
    tab.postMessage({isOpen, topics, figures, status});
  };
};

follow();
