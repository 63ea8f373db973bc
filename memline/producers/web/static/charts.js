// Shows the values of a chart under the pointer; without this script a chart is a picture.
'use strict';

const LEFT = 58, RIGHT = 474, WIDTH = 480;

document.addEventListener('pointermove', event => {
  const picture = event.target.closest('svg[data-chart]');
  if (!picture) return;
  const {begin, step, series} = JSON.parse(picture.dataset.chart);
  const box = picture.getBoundingClientRect();
  const values = Object.values(series);
  const count = values.length ? values[0].length : 0;
  if (!count) return;
  const bars = picture.querySelector('rect');
  const part = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (RIGHT - LEFT);
  const place = Math.min(count - 1, Math.max(0, bars ? Math.floor(part * count) : Math.round(part * (count - 1))));
  const when = new Date((begin + step * place) * 1000).toISOString();
  const words = Object.entries(series).map(([name, each]) => `${name} ${each[place] ?? '–'}`.trim());
  const time = step >= 86400 ? when.slice(0, 10) : when.slice(5, step < 60 ? 19 : 16).replace('T', ' ');
  picture.parentElement.querySelector('.at').textContent = `${time}: ${words.join(', ')}`;
});
document.addEventListener('pointerout', event => {
  const picture = event.target.closest('svg[data-chart]');
  if (picture && !picture.contains(event.relatedTarget)) picture.parentElement.querySelector('.at').textContent = '';
});
