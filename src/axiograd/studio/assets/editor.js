// One image, large: painting on it, undo, and spreading what was painted.
import { $, attempt, className, get, make, mapAddress, maskAddress, post, say, shared } from './api.js';

const dialog = $('#editor');
const canvas = $('#canvas');
const context = canvas.getContext('2d');
const colours = { wrong: '214, 30, 110', right: '0, 150, 120', erase: '128, 128, 128' };
const open = { image: null, about: null, picture: null, heat: null, mask: null };
let kind = 'wrong';
let tool = 'brush';
let stroke = null;
let how = null;
let scale = 8;
const cursor = { x: 0, y: 0, shown: false };

const load = (address) => new Promise((resolve) => {
  const image = new Image();
  image.onload = () => resolve(image);
  image.onerror = () => resolve(null);
  image.src = address;
});

export async function openEditor(image) {
  const about = await attempt(() => get(`api/about/${image}`));
  if (!about) return;
  Object.assign(open, { image, about, heat: null, mask: null });
  open.picture = await load(`api/image/${image}.png`);
  const [width, height] = shared.state.size;
  scale = Math.max(1, Math.floor(640 / Math.max(width, height)));
  canvas.width = width * scale;
  canvas.height = height * scale;
  context.imageSmoothingEnabled = false;
  $('#size').max = Math.max(4, Math.round(Math.max(width, height) / 2));
  cursor.x = Math.floor(width / 2);
  cursor.y = Math.floor(height / 2);
  hidePreview();
  if (!dialog.open) dialog.showModal();
  title();
  draw();
  await refreshEditor();
}

function title() {
  const { about } = open;
  let text = `${about.name} · ${className(about.label)}`;
  if (about.prediction !== undefined) text += `, predicted ${className(about.prediction)} (${Math.round(100 * about.confidence)} %)`;
  $('#editor-title').textContent = text;
}

// What the server has of it: the mask, and the heat map of the network as it is.
export async function refreshEditor() {
  const { image } = open;
  if (!dialog.open) return;
  const mask = await load(maskAddress(image));
  if (image !== open.image) return;
  open.mask = mask;
  draw();
  if (!shared.state.rounds.length) return;
  const heat = await load(mapAddress(image));
  if (image !== open.image) return;
  open.heat = heat;
  draw();
}

function draw() {
  const { width, height } = canvas;
  context.globalAlpha = 1;
  context.clearRect(0, 0, width, height);
  // Under a heat map the image is grey, so that its colours are the map's.
  context.filter = open.heat ? `grayscale(${$('#heat').value}%)` : 'none';
  if (open.picture) context.drawImage(open.picture, 0, 0, width, height);
  context.filter = 'none';
  context.globalAlpha = $('#heat').value / 100;
  if (open.heat) context.drawImage(open.heat, 0, 0, width, height);
  context.globalAlpha = 1;
  if (open.mask) context.drawImage(open.mask, 0, 0, width, height);
  if (stroke) drawStroke();
  if (cursor.shown && !stroke) {
    context.strokeStyle = '#fff';
    context.lineWidth = 2;
    context.strokeRect(cursor.x * scale, cursor.y * scale, scale, scale);
  }
}

function drawStroke() {
  const colour = `rgba(${colours[stroke.kind]}, 0.6)`;
  const points = stroke.points.map(([x, y]) => [x * scale, y * scale]);
  context.fillStyle = colour;
  context.strokeStyle = colour;
  if (stroke.tool === 'rectangle') {
    const [[x0, y0], [x1, y1]] = [points[0], points.at(-1)];
    context.fillRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    return;
  }
  context.lineWidth = stroke.size * scale;
  context.lineCap = 'round';
  context.lineJoin = 'round';
  context.beginPath();
  context.moveTo(...points[0]);
  for (const point of points) context.lineTo(...point);
  context.lineTo(points.at(-1)[0] + 0.01, points.at(-1)[1]);
  context.stroke();
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  // The picture keeps its proportions inside the element.
  const factor = Math.min(box.width / canvas.width, box.height / canvas.height);
  const left = box.left + (box.width - factor * canvas.width) / 2;
  const top = box.top + (box.height - factor * canvas.height) / 2;
  return [(event.clientX - left) / factor / scale, (event.clientY - top) / factor / scale];
}

const begin = (at) => { stroke = { kind, tool, size: Number($('#size').value), points: [at] }; };

async function finish() {
  const done = stroke;
  const { image } = open;
  if (!done) return;
  if (done.tool === 'rectangle') done.points = [done.points[0], done.points.at(-1)];
  const counts = await attempt(() => post('api/stroke', { image, ...done }));
  if (stroke === done) stroke = null;
  if (counts) { shared.stamp += 1; await refreshEditor(); }
  draw();
}

canvas.addEventListener('pointerdown', (event) => {
  if (event.button !== 0) return;
  event.preventDefault();
  canvas.focus();
  canvas.setPointerCapture(event.pointerId);
  cursor.shown = false;
  begin(place(event));
  draw();
});
canvas.addEventListener('pointermove', (event) => {
  if (!stroke || !canvas.hasPointerCapture(event.pointerId)) return;
  for (const one of event.getCoalescedEvents?.() ?? [event]) stroke.points.push(place(one));
  draw();
});
canvas.addEventListener('pointerup', finish);
canvas.addEventListener('pointercancel', () => { stroke = null; draw(); });

// By keyboard: arrows move a pixel (with Shift, four), space paints there.
canvas.addEventListener('keydown', async (event) => {
  const step = event.shiftKey ? 4 : 1;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  const [width, height] = shared.state.size;
  if (moves[event.key]) {
    event.preventDefault();
    cursor.shown = true;
    cursor.x = Math.min(width - 1, Math.max(0, cursor.x + moves[event.key][0]));
    cursor.y = Math.min(height - 1, Math.max(0, cursor.y + moves[event.key][1]));
    draw();
  } else if (event.key === ' ') {
    event.preventDefault();
    if (tool === 'rectangle') {
      const half = Number($('#size').value) / 2;
      begin([cursor.x + 0.5 - half, cursor.y + 0.5 - half]);
      stroke.points.push([cursor.x + 0.5 + half, cursor.y + 0.5 + half]);
    } else begin([cursor.x + 0.5, cursor.y + 0.5]);
    await finish();
  }
});

function choose(group, attribute, value) {
  for (const button of $(group).children) button.setAttribute('aria-checked', button.dataset[attribute] === value);
}
const setKind = (value) => { kind = value; choose('#kinds', 'kind', value); };
const setTool = (value) => { tool = value; choose('#tools', 'tool', value); };
for (const button of $('#kinds').children) button.addEventListener('click', () => setKind(button.dataset.kind));
for (const button of $('#tools').children) button.addEventListener('click', () => setTool(button.dataset.tool));
const setSize = () => { $('#size-words').textContent = `${$('#size').value} pixels`; };
$('#size').addEventListener('input', setSize);
$('#heat').addEventListener('input', draw);
setKind('wrong'); setTool('brush'); setSize();

export async function undo() {
  const undone = await attempt(() => post('api/undo'));
  if (!undone) return;
  shared.stamp += 1;
  say(undone.undone === 'spread' ? 'Spread undone.' : 'Undone.');
  await refreshEditor();
}
$('#undo').addEventListener('click', undo);

// Spreading: first what it would hit, then doing it.
function hidePreview() {
  how = null;
  $('#preview').hidden = true;
  for (const button of $('#spreads').children) button.setAttribute('aria-pressed', false);
}

for (const button of $('#spreads').children) {
  button.addEventListener('click', async () => {
    hidePreview();
    const asked = { image: open.image, how: button.dataset.how, cluster: button.dataset.how === 'cluster' ? shared.cluster : null };
    const found = await attempt(() => post('api/preview', asked));
    if (!found) return;
    how = asked;
    button.setAttribute('aria-pressed', true);
    const about = found.estimated ? 'about ' : '';
    $('#preview p').textContent = found.count ? `Would be applied to ${about}${found.count.toLocaleString('en')} other images, such as these:` : 'No other image matches.';
    $('#preview .strip').replaceChildren(...found.examples.map(example));
    $('#spread').hidden = !found.count;
    $('#preview').hidden = false;
    $('#preview').scrollIntoView({ block: 'nearest' });
  });
}

function example({ image, down, right }) {
  const frame = make('span', { className: 'frame' }, make('img', { src: `api/thumb/${image}.png`, alt: `image ${image}` }));
  const [width, height] = shared.state.size;
  for (const one of open.about.strokes) {
    const half = one.tool === 'brush' ? one.size / 2 : 0;
    const xs = one.points.map((point) => point[0]);
    const ys = one.points.map((point) => point[1]);
    const [x0, y0, x1, y1] = [Math.min(...xs) - half + right, Math.min(...ys) - half + down, Math.max(...xs) + half + right, Math.max(...ys) + half + down];
    const box = make('span', { className: 'box' });
    Object.assign(box.style, { left: `${100 * x0 / width}%`, top: `${100 * y0 / height}%`, width: `${100 * (x1 - x0) / width}%`, height: `${100 * (y1 - y0) / height}%` });
    frame.append(box);
  }
  return frame;
}

$('#spread').addEventListener('click', async () => {
  const asked = how;
  hidePreview();
  const done = await attempt(() => post('api/spread', asked));
  if (!done) return;
  shared.stamp += 1;
  say(`Spread to ${done.spread.toLocaleString('en')} images.`);
});

// From image to image, and out.
function step(by) {
  const at = shared.images.indexOf(open.image);
  const next = shared.images[at + by];
  if (next !== undefined) openEditor(next);
}
$('#previous').addEventListener('click', () => step(-1));
$('#next').addEventListener('click', () => step(1));
$('#close').addEventListener('click', () => dialog.close());
dialog.addEventListener('close', () => {
  document.body.append($('#message'));
  $(`.card[data-image="${open.image}"]`)?.focus();
});
dialog.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey ? event.key !== 'z' : event.target.matches('select, input:not([type=range])')) return;
  const keys = { 1: () => setKind('wrong'), 2: () => setKind('right'), 3: () => setKind('erase'), b: () => setTool('brush'), r: () => setTool('rectangle'), z: undo, n: () => step(1), p: () => step(-1) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

// Strokes are part of what is known about an image: after painting, ask again.
export async function remember() {
  if (!dialog.open) return;
  const about = await attempt(() => get(`api/about/${open.image}`));
  if (about && about.image === open.image) open.about = about;
}
