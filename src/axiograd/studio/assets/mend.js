// Training, what became of it, the rounds, and keeping.
import { $, attempt, className, get, make, mapAddress, percent, post, say, shared } from './api.js';
import { openEditor } from './editor.js';

const words = { '-3': 'very weak', '-2': 'weak', '-1': 'rather weak', 0: 'normal', 1: 'rather strong', 2: 'strong', 3: 'very strong' };
const strength = $('#strength');
strength.addEventListener('input', () => { $('#strength-words').textContent = words[strength.value]; });

$('#train').addEventListener('click', () => attempt(async () => {
  await post('api/mend', { prior: $('#prior').value, strength: 4 ** Number(strength.value), seconds: Number($('#seconds').value) });
  shared.live = shared.state.rounds.length;
  shared.state.steps = [];
}));
$('#stop').addEventListener('click', () => attempt(() => post('api/stop')));
$('#keep-all').addEventListener('click', () => attempt(() => post('api/keep', {})));
$('#export').addEventListener('click', () => attempt(async () => {
  const done = await post('api/export');
  say(`The masks of ${done.images} images are in ${done.folder}.`);
}));
$('#import').addEventListener('submit', (event) => {
  event.preventDefault();
  attempt(async () => say(`Masks imported: ${(await post('api/import', { folder: event.target.elements.folder.value })).imported}.`));
});

export function showMend() {
  const { state } = shared;
  const busy = Boolean(state.job);
  $('#marked').textContent = state.marked
    ? `${state.painted} image${state.painted === 1 ? '' : 's'} painted, ${state.marked.toLocaleString('en')} marked in all.`
    : 'Open an image, and paint over what must not count.';
  $('#train').disabled = busy || Boolean(state.trouble) || !state.rounds.length;
  $('#keep-all').disabled = busy || !state.rounds.length;
}

// Loss of the task and of the prior, and accuracy, while it is trained; each on its own scale.
export function showLive() {
  const { steps } = shared.state;
  $('#live').hidden = !steps.length;
  if (!steps.length) return;
  const canvas = $('#live canvas');
  const pen = canvas.getContext('2d');
  const style = getComputedStyle(document.documentElement);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const line = (values, colour, most) => {
    pen.strokeStyle = style.getPropertyValue(colour);
    pen.lineWidth = 3;
    pen.beginPath();
    values.forEach((value, at) => {
      const x = 8 + (canvas.width - 16) * (values.length > 1 ? at / (values.length - 1) : 0);
      pen.lineTo(x, canvas.height - 8 - (canvas.height - 16) * Math.min(1, value / most));
    });
    pen.stroke();
  };
  const smooth = (name) => steps.map((_, at) => {
    const part = steps.slice(Math.max(0, at - 4), at + 1);
    return part.reduce((sum, one) => sum + one[name], 0) / part.length;
  });
  const prior = smooth('prior');
  line(prior, '--wrong', Math.max(...prior));
  line(smooth('task'), '--quiet', Math.max(...smooth('task')));
  line(smooth('accuracy'), '--accent', 1);
  const last = steps.at(-1);
  $('#live figcaption').replaceChildren(
    `pass ${last.epoch + 1}, ${Math.round(last.seconds)} of ${last.of} s · `,
    colourful(`accuracy ${percent(smooth('accuracy').at(-1))}`, '--accent'), ' · ',
    `loss ${smooth('task').at(-1).toFixed(2)} · `, colourful(`prior ${prior.at(-1).toPrecision(2)}`, '--wrong'));
}

function colourful(text, colour) {
  const span = make('span', { textContent: text });
  span.style.color = `var(${colour})`;
  return span;
}

const ROWS = [
  ['Accuracy', 'accuracy', 1],
  ['… with marked regions exchanged', 'randomised', 1],
  ['Attribution in marked regions', 'wrong_share', -1],
];

export function showVerdict() {
  const { state } = shared;
  const box = $('#verdict');
  const [before, after] = (state.compared ?? []).map((number) => state.rounds[number]);
  if (!after?.verdict) {
    box.replaceChildren(make('p', { className: 'hint', textContent: 'After training, both networks are judged here on held-out images.' }));
    return;
  }
  const single = before.id === after.id;
  const rows = ROWS.map(([name, key, sign]) => row(name, before.verdict[key], after.verdict[key], sign, single));
  const head = make('tr', {}, make('th'), ...(single ? [] : [make('th', { textContent: `round ${before.id}` })]), make('th', { textContent: `round ${after.id}` }));
  const table = make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows));
  const parts = [make('p', { className: 'hint', textContent: `On ${after.verdict.images.toLocaleString('en')} held-out images, ${after.verdict.marked.toLocaleString('en')} of them marked.` }), table];
  const start = state.rounds[0];
  if (single && start.before !== undefined) parts.push(make('p', { className: 'hint', textContent: `${start.words} Accuracy before ${percent(start.before)}, after ${percent(start.after)}.` }));
  if (!single) parts.push(...comparison(before, after));
  box.replaceChildren(...parts);
}

function row(name, first, second, sign, single) {
  const found = make('tr', {}, make('th', { textContent: name, scope: 'row' }));
  if (!single) found.append(make('td', { textContent: percent(first) }));
  const better = !single && first !== null && second !== null ? Math.sign(sign * (second - first)) : 0;
  found.append(make('td', { textContent: percent(second), className: better > 0 ? 'better' : better < 0 ? 'worse' : '' }));
  return found;
}

function comparison(before, after) {
  const { changes } = shared.state;
  const parts = [];
  if (changes) {
    parts.push(make('p', { className: 'hint', textContent: `${changes.gained} now right that were wrong, ${changes.lost} now wrong that were right.` }));
    const lost = Object.keys(after.verdict.by_class)
      .map((name) => [name, after.verdict.by_class[name] - before.verdict.by_class[name]])
      .filter(([, change]) => change < -0.02).sort((one, other) => one[1] - other[1]);
    if (lost.length) parts.push(make('p', { className: 'hint', textContent: `Worse by class: ${lost.slice(0, 4).map(([name, change]) => `${name} ${(100 * change).toFixed(1)}`).join(', ')} points.` }));
  }
  const shown = [...(changes?.gained_rows ?? []), ...(changes?.lost_rows ?? []), ...shared.images].slice(0, 2);
  const pairs = make('div', { className: 'pairs' });
  for (const image of shown) {
    for (const round of [before.id, after.id]) {
      const frame = make('span', { className: 'frame' }, make('img', { src: `api/thumb/${image}.png`, alt: '' }), make('img', { className: 'heat', src: mapAddress(image, round), alt: `attribution of round ${round}` }));
      const figure = make('figure', {}, frame, make('figcaption', { textContent: `round ${round}` }));
      figure.addEventListener('click', () => openEditor(image));
      pairs.append(figure);
    }
  }
  parts.push(pairs);
  return parts;
}

export function showRounds() {
  const { state } = shared;
  $('#rounds').replaceChildren(...state.rounds.map((one) => {
    const name = one.parent === null ? 'The beginning' : `Round ${one.id}, from ${one.parent}`;
    const facts = [];
    if (one.plan) facts.push(`${one.plan.epochs} pass${one.plan.epochs === 1 ? '' : 'es'}, ${one.marked.toLocaleString('en')} marked`);
    if (one.verdict) facts.push(`${percent(one.verdict.randomised ?? one.verdict.accuracy)}${one.verdict.randomised === null ? '' : ' with regions exchanged'}`);
    const line = make('span', { className: one.id === state.current ? 'current' : '' }, name, make('small', { textContent: facts.join(' · ') }));
    const item = make('li', {}, line);
    if (one.id !== state.current) {
      const go = make('button', { type: 'button', textContent: 'Go back', disabled: Boolean(state.job) });
      go.addEventListener('click', () => attempt(() => post('api/go', { round: one.id })));
      const compare = make('button', { type: 'button', textContent: 'Compare', disabled: Boolean(state.job) });
      compare.addEventListener('click', () => attempt(() => post('api/judge', { rounds: [one.id, state.current] })));
      item.append(compare, go);
    }
    return item;
  }));
}

export { className, get };
