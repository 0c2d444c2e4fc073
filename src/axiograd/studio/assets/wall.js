// The wall of images, the filters, and the clusters beside it.
import { $, attempt, className, get, make, mapAddress, maskAddress, shared } from './api.js';
import { openEditor } from './editor.js';

const wall = $('#wall');
const filters = $('#filters');
let total = 0;
let asked = 0;

// Maps are asked for when they come into sight, and no sooner.
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    const image = Number(entry.target.dataset.image);
    if (shared.state.rounds.length) $('.heat', entry.target).src = mapAddress(image);
  }
}, { rootMargin: '200px' });

export function fillFilters() {
  const labels = filters.elements.label;
  if (labels.options.length) return;
  labels.append(new Option('all', ''), ...shared.state.classes.map((name, label) => new Option(name, label)));
  wall.classList.toggle('smooth', Math.max(...shared.state.size) > 100);
}

export async function showWall({ more = false } = {}) {
  const chosen = new URLSearchParams({
    label: filters.elements.label.value, show: filters.elements.show.value, sort: filters.elements.sort.value,
    text: filters.elements.text.value, start: more ? shared.images.length : 0, count: 60,
  });
  if (shared.cluster !== null) chosen.set('cluster', shared.cluster);
  const number = ++asked;
  const found = await attempt(() => get(`api/images?${chosen}`));
  if (!found || number !== asked) return;
  total = found.total;
  if (!more) { wall.replaceChildren(); shared.images = []; }
  shared.images.push(...found.images.map((one) => one.image));
  wall.append(...found.images.map(card));
  $('#more').hidden = shared.images.length >= total;
  const which = shared.cluster === null ? '' : ' in this cluster';
  $('#count').textContent = total ? `${total.toLocaleString('en')} image${total === 1 ? '' : 's'}${which}` : 'No images match.';
}

function card(one) {
  const frame = make('span', { className: 'frame' },
    make('img', { src: `api/thumb/${one.image}.png`, alt: '', loading: 'lazy' }),
    make('img', { className: 'heat', alt: '' }));
  if (one.marked) frame.append(make('img', { className: 'mask', src: maskAddress(one.image), alt: 'marked' }));
  const wrong = one.prediction !== undefined && one.prediction !== one.label;
  const line = make('span', { className: 'line', textContent: className(one.label), title: one.name });
  if (wrong) line.append(make('span', { className: 'no', textContent: ` → ${className(one.prediction)}` }));
  const button = make('button', { type: 'button', className: 'card', title: one.name }, frame, line);
  button.dataset.image = one.image;
  button.addEventListener('click', () => openEditor(one.image));
  seen.observe(button);
  return button;
}

// The network has changed, or the marks have: what is in sight is asked for again, the rest when it comes into sight.
export function refreshMaps() {
  for (const button of wall.children) {
    const mask = $('.mask', button);
    if (mask) mask.src = maskAddress(button.dataset.image);
    seen.unobserve(button);
    seen.observe(button);
  }
}

export function showClusters() {
  const list = $('#clusters');
  const found = shared.state.clusters;
  list.replaceChildren(...found.slice(0, 12).map((one, place) => {
    const [left, top, right, bottom] = one.box;
    const box = make('span');
    Object.assign(box.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
    const lever = make('i');
    lever.style.width = `${100 * Math.max(0, Math.min(1, one.leverage))}%`;
    const picture = make('span', { className: 'place' }, make('img', { src: `api/thumb/${one.example}.png`, alt: '' }), box);
    const facts = make('span', { className: 'facts' }, one.sentence,
      make('small', { textContent: `without it ${Math.round(100 * one.changed)} % of the predictions change` }),
      make('span', { className: 'lever' }, lever));
    facts.lastChild.style.display = 'block';
    const button = make('button', { type: 'button' }, picture, facts);
    button.setAttribute('aria-pressed', shared.cluster === place);
    button.addEventListener('click', () => {
      shared.cluster = shared.cluster === place ? null : place;
      showClusters();
      showWall();
    });
    return make('li', {}, button);
  }));
  if (!found.length) list.append(make('li', { className: 'hint', textContent: shared.state.job ? 'Searching …' : 'None found.' }));
}

filters.addEventListener('change', (event) => { if (event.target.name !== 'overlay') showWall(); });
filters.addEventListener('submit', (event) => { event.preventDefault(); showWall(); });
filters.elements.text.addEventListener('input', () => showWall());
filters.elements.overlay.addEventListener('input', (event) => document.documentElement.style.setProperty('--heat', event.target.value / 100));
$('#more').addEventListener('click', () => showWall({ more: true }));
