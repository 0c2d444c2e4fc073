// The state of the page: fetched when it is opened, and again when the server says that it has changed.
import { $, attempt, get, make, many, say, shared } from './api.js';
import { refreshEditor } from './editor.js';
import { showFix, showLive, showRounds, showVerdict } from './fix.js';
import { fillFilters, refreshWall, showClusters, showWall } from './wall.js';

async function refresh() {
  const state = await attempt(() => get('api/state'));
  if (!state) return;
  const before = shared.state;
  shared.state = state;
  $('#about').textContent = `${state.model} · ${state.data}, ${many(state.images)} of ${state.classes.length} classes`;
  fillFilters();
  if (!before || state.current !== before.current || state.clusters.length !== before.clusters.length) {
    shared.cluster = null;
    await showWall();
  } else if (state.rounds.length !== before.rounds.length || state.job?.round !== before.job?.round) refreshWall();
  showClusters();
  showJob();
  showLive();
  showVerdict();
  showRounds();
  if (state.trouble) $('#wall').replaceChildren(make('p', { className: 'trouble', textContent: state.trouble }));
  if (!before) {
    if (state.skipped_count) say(`${many(state.skipped_count, 'file')} could not be read: ${state.skipped.join('; ')}`);
    else if (state.messages.length) say(state.messages.at(-1));
  }
}

function showJob() {
  const { job } = shared.state;
  const box = $('#job');
  box.hidden = !job;
  document.documentElement.dataset.job = job?.kind ?? 'none';
  showFix();
  if (!job) return;
  $('.words', box).textContent = job.words;
  const bar = $('progress', box);
  if (job.total) { bar.max = job.total; bar.value = job.done; } else bar.removeAttribute('value');
}

// Several changes in a row are one.
let waiting = 0;
function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 100);
}

let mapped = 0;
const hear = {
  state: soon,
  message: ({ text }) => say(text),
  job: ({ job }) => {
    const before = shared.state.job;
    shared.state.job = job;
    showJob();
    if (job.words !== before?.words) soon();
  },
  step: ({ kind, ...step }) => {
    shared.state.steps.push(step);
    showLive();
    // The wall changes as the network does, every few seconds.
    if (performance.now() - mapped > 3000) {
      mapped = performance.now();
      shared.learnt += 1;
      refreshWall();
      refreshEditor();
    }
  },
  marks: ({ kind, ...counts }) => {
    Object.assign(shared.state, counts);
    shared.painted += 1;
    showFix();
    refreshWall();
    refreshEditor();
  },
};

await refresh();
const events = new EventSource('api/events');
let lost = false;
events.onmessage = (event) => { const heard = JSON.parse(event.data); hear[heard.kind](heard); };
events.onopen = () => { if (lost) { lost = false; say('Reconnected.'); } refresh(); };
events.onerror = () => { if (!lost) { lost = true; say('The studio has stopped. Start it again; nothing is lost.'); } };
