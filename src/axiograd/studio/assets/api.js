// Requests to the server, and a place for what it says.
export const $ = (selector, root = document) => root.querySelector(selector);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

let hiding = 0;
export function say(text) {
  const box = $('#message');
  $('span', box).textContent = text;
  box.hidden = false;
  // A dialog that is open covers everything else: the message goes into it.
  ($('dialog[open]') ?? document.body).append(box);
  clearTimeout(hiding);
  hiding = setTimeout(() => { box.hidden = true; }, 4000 + 60 * text.length);
}
$('#message button').addEventListener('click', () => { $('#message').hidden = true; });

export async function get(path) {
  return read(await fetch(path));
}

export async function post(path, content = {}) {
  return read(await fetch(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(content) }));
}

async function read(answer) {
  let content;
  try { content = await answer.json(); } catch { content = { error: `The studio answered ${answer.status}.` }; }
  if (!answer.ok) throw new Error(content.error ?? 'The studio did not answer.');
  return content;
}

// Runs what a button does; an error becomes a sentence.
export async function attempt(action) {
  try { return await action(); } catch (error) {
    say(error instanceof TypeError ? 'The studio has stopped. Start it again; nothing is lost.' : error.message);
    return undefined;
  }
}

export const percent = (value) => (value === null || value === undefined ? '–' : `${Math.round(100 * value)}\u00a0%`);
export const many = (count, word = 'image') => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;
// What is marked changes with `painted`, and the network that is trained with `learnt`: their pictures have new addresses.
export const shared = { state: null, cluster: null, painted: 0, learnt: 0, images: [] };
export const className = (label) => shared.state.classes[label] ?? `output ${label}`;
// The round that is being trained, or null.
export const live = () => shared.state.job?.round ?? null;
export const shownRound = () => live() ?? shared.state.current;
export const mapAddress = (image, round = shownRound()) => `api/map/${round}/${image}.png${round === live() ? `?${shared.learnt}` : ''}`;
export const maskAddress = (image) => `api/mask/${image}.png?${shared.painted}`;
export const thumbnail = (image) => make('img', { src: `api/thumb/${image}.png`, alt: '', loading: 'lazy' });
