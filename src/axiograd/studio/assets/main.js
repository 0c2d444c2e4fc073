// The state of the page: fetched when it is opened, and again when the server says that it has changed.
import { $, attempt, get, make, say, shared } from './api.js';
import { refreshEditor, remember } from './editor.js';
import { showLive, showMend, showRounds, showVerdict } from './mend.js';
import { fillFilters, refreshMaps, showClusters, showWall } from './wall.js';

let waiting = 0;

async function refresh() {
  const state = await attempt(() => get('api/state'));
  if (!state) return;
  const first = shared.state === null;
  const changed = first || state.current !== shared.state.current || state.clusters.length !== shared.state.clusters.length || state.rounds.length !== shared.state.rounds.length;
  shared.state = state;
  shared.live = state.job?.kind === 'mend' ? state.rounds.length : null;
  $('#about').textContent = `${state.model} · ${state.data}, ${state.images.toLocaleString('en')} images of ${state.classes.length} classes`;
  fillFilters();
  if (changed) { shared.cluster = null; await showWall(); }
  showClusters();
  showJob(state.job);
  showMend();
  showLive();
  showVerdict();
  showRounds();
  if (state.trouble) $('#wall').replaceChildren(make('p', { className: 'trouble', textContent: state.trouble }));
  if (first) {
    if (state.skipped_count) say(`${state.skipped_count} files could not be read and were left out: ${state.skipped.join('; ')}`);
    else if (state.messages.length) say(state.messages.at(-1));
    document.documentElement.dataset.ready = 'yes';
  }
  document.documentElement.dataset.job = state.job?.kind ?? 'none';
}

function showJob(job) {
  const box = $('#job');
  box.hidden = !job;
  if (!job) return;
  $('.words', box).textContent = job.words;
  const bar = $('progress', box);
  if (job.total) { bar.max = job.total; bar.value = job.done; } else bar.removeAttribute('value');
}

// Several changes in a row are one.
function soon(action, milliseconds = 150) {
  clearTimeout(waiting);
  waiting = setTimeout(action, milliseconds);
}

let mapped = 0;
const hear = {
  state: () => soon(refresh),
  message: ({ text }) => say(text),
  job: ({ job }) => {
    const kind = shared.state?.job?.kind;
    if (shared.state) { shared.state.job = job; showMend(); }
    document.documentElement.dataset.job = job?.kind ?? 'none';
    showJob(job);
    if (job?.kind !== kind) soon(refresh);
  },
  step: ({ kind, ...step }) => {
    if (!shared.state) return;
    shared.state.steps.push(step);
    showLive();
    const bar = $('#job progress');
    bar.max = step.of;
    bar.value = Math.min(step.of, step.seconds);
    // The wall changes as the network does, every few seconds.
    if (performance.now() - mapped > 4000) {
      mapped = performance.now();
      shared.stamp += 1;
      refreshMaps();
      refreshEditor();
    }
  },
  marks: async () => {
    await remember();
    const state = await attempt(() => get('api/state'));
    if (!state) return;
    Object.assign(shared.state, { painted: state.painted, marked: state.marked });
    shared.stamp += 1;
    showMend();
    refreshMaps();
  },
};

const events = new EventSource('api/events');
let lost = false;
events.onmessage = (event) => { const { kind, ...content } = JSON.parse(event.data); hear[kind]?.({ kind, ...content }); };
events.onopen = () => { if (lost) { lost = false; say('Reconnected.'); refresh(); } };
events.onerror = () => { if (!lost) { lost = true; say('The studio has stopped. Start it again; nothing is lost.'); } };
refresh();
