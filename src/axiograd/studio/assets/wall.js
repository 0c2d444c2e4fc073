// The wall of images, the filters, and the places beside it.
import { $, attempt, className, get, make, many, mapAddress, maskAddress, percent, shared, thumbnail } from './api.js';
import { openEditor } from './editor.js';

const wall = $('#wall');
const filters = $('#filters');
let asked = 0;

// Heat maps and masks are asked for when they come into sight, and no sooner.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    const image = Number(target.dataset.image);
    if (shared.state.rounds.length) change($('.heat', target), mapAddress(image));
    change($('.mask', target), maskAddress(image));
  }
}, { rootMargin: '200px' });

const change = (picture, address) => { if (picture.getAttribute('src') !== address) picture.src = address; };

// The network has changed, or the marks have: what is in sight is asked for again, the rest when it comes into sight.
export function refreshWall() {
  for (const card of wall.querySelectorAll('.card')) {
    seen.unobserve(card);
    seen.observe(card);
  }
}

export function fillFilters() {
  const labels = filters.elements.label;
  if (labels.options.length) return;
  labels.append(new Option('all', ''), ...shared.state.classes.map((name, label) => new Option(name, label)));
  wall.classList.toggle('smooth', Math.max(...shared.state.size) > 100);
}

export async function showWall({ more = false } = {}) {
  const chosen = new URLSearchParams({
    label: filters.elements.label.value, show: filters.elements.show.value,
    text: filters.elements.text.value, start: more ? shared.images.length : 0, count: 60,
  });
  if (shared.cluster !== null) chosen.set('cluster', shared.cluster);
  const number = ++asked;
  const found = await attempt(() => get(`api/images?${chosen}`));
  if (!found || number !== asked) return;
  if (!more) { wall.replaceChildren(); shared.images = []; }
  shared.images.push(...found.images.map((one) => one.image));
  wall.append(...found.images.map(card));
  $('#more').hidden = shared.images.length >= found.total;
  $('#count').textContent = found.total ? `${many(found.total)}${shared.cluster === null ? '' : ' of this place'}` : 'No images match.';
}

function card(one) {
  const frame = make('span', { className: 'frame' }, thumbnail(one.image),
    make('img', { className: 'heat', alt: '' }), make('img', { className: 'mask', alt: '' }));
  const line = make('span', { className: 'line', textContent: className(one.label), title: one.name });
  if (one.prediction !== undefined && one.prediction !== one.label) line.append(make('span', { className: 'no', textContent: ` → ${className(one.prediction)}` }));
  const button = make('button', { type: 'button', className: 'card', title: one.name }, frame, line);
  button.dataset.image = one.image;
  button.addEventListener('click', () => openEditor(one.image));
  seen.observe(button);
  return button;
}

export function showClusters() {
  const { clusters, job } = shared.state;
  $('#clusters').replaceChildren(...clusters.slice(0, 12).map((one, place) => {
    const [left, top, right, bottom] = one.box.map((share) => `${100 * share}%`);
    const box = make('span');
    Object.assign(box.style, { left, top, width: `calc(${right} - ${left})`, height: `calc(${bottom} - ${top})` });
    const facts = make('span', { className: 'facts' }, one.sentence.replaceAll(' %', '\u00a0%'),
      make('small', { textContent: `Without it ${percent(one.changed)} of the predictions change.` }));
    const button = make('button', { type: 'button' }, make('span', { className: 'place' }, thumbnail(one.example), box), facts);
    button.setAttribute('aria-pressed', shared.cluster === place);
    button.addEventListener('click', () => {
      shared.cluster = shared.cluster === place ? null : place;
      showClusters();
      showWall();
    });
    return make('li', {}, button);
  }));
  if (!clusters.length) $('#clusters').append(make('li', { className: 'hint', textContent: job ? 'Searching …' : 'No small place decides the predictions.' }));
}

filters.addEventListener('change', (event) => { if (event.target.name !== 'heat') showWall(); });
filters.addEventListener('submit', (event) => { event.preventDefault(); showWall(); });
filters.elements.text.addEventListener('input', () => showWall());
filters.elements.heat.addEventListener('input', (event) => document.body.classList.toggle('plain', !event.target.checked));
$('#more').addEventListener('click', () => showWall({ more: true }));
