// Training, what became of it, the rounds, and keeping.
import { $, attempt, make, many, mapAddress, percent, post, shared, thumbnail } from './api.js';
import { openEditor } from './editor.js';

const words = { '-3': 'very weak', '-2': 'weak', '-1': 'rather weak', 0: 'normal', 1: 'rather strong', 2: 'strong', 3: 'very strong' };
const [prior, strength, seconds] = ['#prior', '#strength', '#seconds'].map((name) => $(name));
function summarise() {
  $('#strength-words').textContent = words[strength.value];
  $('#options').textContent = `${prior.selectedOptions[0].text}, ${words[strength.value]}, ${seconds.selectedOptions[0].text}`;
}
for (const one of [prior, strength, seconds]) one.addEventListener('input', summarise);
summarise();

$('#train').addEventListener('click', () => attempt(() => post('api/fix', { prior: prior.value, strength: 4 ** Number(strength.value), seconds: Number(seconds.value) })));
$('#stop').addEventListener('click', () => attempt(() => post('api/stop')));
$('#keep').addEventListener('click', () => attempt(() => post('api/keep')));

// Which of the four steps comes next.
const next = ({ rounds, marked, current }) => {
  if (!rounds.length) return 'look';
  if (!marked) return 'paint';
  return rounds[current].verdict && current ? 'judge' : 'fix';
};

export function showFix() {
  const { state } = shared;
  const idle = !state.job && !state.trouble;
  $('#marked').textContent = state.marked ? `${many(state.painted)} painted, ${state.marked.toLocaleString('en')} marked in all.` : '';
  $('#train').disabled = !idle;
  $('#keep').disabled = !idle;
  for (const heading of document.querySelectorAll('main h2')) heading.classList.toggle('next', heading.id === `${next(state)}-title`);
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
  const smooth = (name) => steps.map((_, at) => {
    const part = steps.slice(Math.max(0, at - 4), at + 1);
    return part.reduce((sum, one) => sum + one[name], 0) / part.length;
  });
  const lines = [['prior', '--wrong'], ['task', '--quiet'], ['accuracy', '--accent']].map(([name, colour]) => {
    const values = smooth(name);
    const most = name === 'accuracy' ? 1 : Math.max(...values);
    pen.strokeStyle = style.getPropertyValue(colour);
    pen.lineWidth = 3;
    pen.beginPath();
    values.forEach((value, at) => {
      const x = 8 + (canvas.width - 16) * (values.length > 1 ? at / (values.length - 1) : 0);
      pen.lineTo(x, canvas.height - 8 - (canvas.height - 16) * Math.min(1, value / most));
    });
    pen.stroke();
    return [name, colour, values.at(-1)];
  });
  const last = steps.at(-1);
  $('#live figcaption').replaceChildren(`pass ${last.passes + 1}, ${Math.round(last.seconds)} of ${last.of} s`, ...lines.map(([name, colour, value]) => {
    const span = make('span', { textContent: ` · ${name} ${name === 'accuracy' ? percent(value) : value.toPrecision(2)}` });
    span.style.color = `var(${colour})`;
    return span;
  }));
}

export function showVerdict() {
  const { state } = shared;
  const after = state.rounds[state.current];
  const before = state.rounds[after?.parent ?? state.current];
  if (!after?.verdict) {
    $('#verdict').replaceChildren(make('p', { className: 'hint', textContent: 'Networks are judged here on images that they were never trained with.' }));
    return;
  }
  const same = before.id === after.id;
  const change = (key) => (same ? percent(after.verdict[key]) : `${percent(before.verdict[key])} → ${percent(after.verdict[key])}`);
  const parts = [];
  if (after.verdict.exchanged !== null) {
    parts.push(headline('With regions exchanged', change('exchanged'), same ? 0 : after.verdict.exchanged - before.verdict.exchanged));
    parts.push(make('p', { className: 'hint', textContent: exchange(after.verdict) }));
    parts.push(make('p', { textContent: `Attribution in the marked regions: ${change('wrong_share')}.` }));
  }
  parts.push(make('p', { textContent: `Accuracy on all ${many(after.verdict.images, 'held-out image')}: ${change('accuracy')}.` }));
  if (!same) parts.push(...comparison(before, after));
  else if (after.words) parts.push(make('p', { className: 'hint', textContent: after.words }));
  $('#verdict').replaceChildren(...parts);
}

const headline = (name, value, gain) => make('p', { className: 'headline' }, `${name}: `,
  make('b', { textContent: value, className: gain > 0 ? 'better' : gain < 0 ? 'worse' : '' }));

// What was exchanged for what, and what this therefore does not judge.
function exchange({ marked, marked_classes: those, unmarked_classes: others }) {
  const list = (names) => `${names.slice(0, 4).map((name) => `“${name}”`).join(', ')}${names.length > 4 ? ` and ${names.length - 4} more` : ''}`;
  const whose = others.length ? `, all of class ${list(those)},` : '';
  const rest = others.length ? ` Nothing is marked in ${list(others)}: what decides there is not judged.` : '';
  return `Accuracy on ${many(marked, 'held-out image')}${whose} with the marked regions exchanged for the same place in images of other classes.${rest}`;
}

function comparison(before, after) {
  const { changes } = shared.state;
  const shown = [...changes.shown, ...shared.images].slice(0, 2);
  const pairs = shown.flatMap((image) => [before.id, after.id].map((round) => {
    const frame = make('span', { className: 'frame' }, thumbnail(image), make('img', { className: 'heat', src: mapAddress(image, round), alt: '' }));
    const button = make('button', { type: 'button', className: 'card' }, frame, make('span', { className: 'line', textContent: round === before.id ? 'before' : 'after' }));
    button.addEventListener('click', () => openEditor(image));
    return button;
  }));
  return [
    make('p', { className: 'hint', textContent: `${many(changes.gained)} newly right, ${changes.lost.toLocaleString('en')} newly wrong.` }),
    make('div', { className: 'pairs' }, ...pairs),
  ];
}

export function showRounds() {
  const { state } = shared;
  $('#rounds').replaceChildren(...(state.rounds.length < 2 ? [] : state.rounds).map((one) => {
    const name = one.parent === null ? 'Start' : `Round ${one.id}, from ${one.parent || 'the start'}`;
    const facts = [];
    if (one.plan) facts.push(`${many(one.plan.passes, 'pass').replace('passs', 'passes')}, ${one.marked.toLocaleString('en')} marked`);
    if (one.verdict) facts.push(one.verdict.exchanged === null ? `accuracy ${percent(one.verdict.accuracy)}` : `exchanged ${percent(one.verdict.exchanged)}`);
    const item = make('li', {}, make('span', { className: one.id === state.current ? 'current' : '' }, name, make('small', { textContent: facts.join(' · ') })));
    if (one.id !== state.current) {
      const button = make('button', { type: 'button', textContent: 'Go there', disabled: Boolean(state.job) });
      button.addEventListener('click', () => attempt(() => post('api/go', { round: one.id })));
      item.append(button);
    }
    return item;
  }));
}
