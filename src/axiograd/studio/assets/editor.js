// One image, large: painting on it, undo, and spreading what was painted.
import { $, attempt, className, get, make, many, mapAddress, maskAddress, post, say, shared, thumbnail } from './api.js';

const dialog = $('#editor');
const canvas = $('#canvas');
const context = canvas.getContext('2d');
const colours = { wrong: '214, 30, 110', right: '0, 150, 120', erase: '128, 128, 128' };
const open = { image: null, about: null, picture: null, heat: null, mask: null };
const cursor = { x: 0, y: 0, shown: false };
let kind = 'wrong';
let tool = 'brush';
let stroke = null;
let how = null;
let scale = 8;

const load = (address) => new Promise((resolve) => {
  const image = new Image();
  image.onload = () => resolve(image);
  image.onerror = () => resolve(null);
  image.src = address;
});

export async function openEditor(image) {
  const [width, height] = shared.state.size;
  scale = Math.max(1, Math.floor(640 / Math.max(width, height)));
  canvas.width = width * scale;
  canvas.height = height * scale;
  $('#size').max = Math.max(4, Math.round(Math.max(width, height) / 2));
  Object.assign(cursor, { x: Math.floor(width / 2), y: Math.floor(height / 2), shown: false });
  Object.assign(open, { image, about: null, picture: null, heat: null, mask: null });
  hidePreview();
  if (!dialog.open) dialog.showModal();
  open.picture = await load(`api/image/${image}.png`);
  await refreshEditor();
}

// What the server has of it: strokes, the mask, and the heat map of the network as it is.
export async function refreshEditor() {
  const { image } = open;
  if (!dialog.open) return;
  const found = await Promise.all([
    attempt(() => get(`api/about/${image}`)), load(maskAddress(image)),
    shared.state.rounds.length ? load(mapAddress(image)) : null,
  ]);
  if (image !== open.image || !found[0]) return;
  [open.about, open.mask, open.heat] = found;
  const { name, label, prediction, confidence } = open.about;
  const seen = prediction === undefined ? '' : `, predicted ${className(prediction)} (${Math.round(100 * confidence)} %)`;
  $('#editor-title').textContent = `${name} · ${className(label)}${seen}`;
  $('[data-how=class]').textContent = `same place in class “${className(label)}”`;
  draw();
}

function draw() {
  const { width, height } = canvas;
  const heat = $('#heat').checked ? open.heat : null;
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, width, height);
  // Under a heat map the image is grey, so that the only colours are the map's.
  context.filter = heat ? 'grayscale(1)' : 'none';
  if (open.picture) context.drawImage(open.picture, 0, 0, width, height);
  context.filter = 'none';
  for (const layer of [heat, open.mask]) if (layer) context.drawImage(layer, 0, 0, width, height);
  if (stroke) drawStroke();
  if (cursor.shown && !stroke) {
    context.strokeStyle = '#fff';
    context.lineWidth = 2;
    context.strokeRect(cursor.x * scale, cursor.y * scale, scale, scale);
  }
}

function drawStroke() {
  const points = stroke.points.map(([x, y]) => [x * scale, y * scale]);
  context.fillStyle = context.strokeStyle = `rgba(${colours[stroke.kind]}, 0.6)`;
  if (stroke.tool === 'rectangle') {
    const [[x0, y0], [x1, y1]] = [points[0], points.at(-1)];
    context.fillRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    return;
  }
  context.lineWidth = stroke.size * scale;
  context.lineCap = context.lineJoin = 'round';
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
  if (!done) return;
  if (done.tool === 'rectangle') done.points = [done.points[0], done.points.at(-1)];
  hidePreview();
  // The server tells every page what is marked now, this one too.
  await attempt(() => post('api/stroke', { image: open.image, ...done }));
  if (stroke === done) stroke = null;
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
  if (!moves[event.key] && event.key !== ' ') return;
  event.preventDefault();
  if (event.key === ' ') {
    const half = tool === 'rectangle' ? Number($('#size').value) / 2 : 0;
    begin([cursor.x + 0.5 - half, cursor.y + 0.5 - half]);
    stroke.points.push([cursor.x + 0.5 + half, cursor.y + 0.5 + half]);
    await finish();
    return;
  }
  cursor.shown = true;
  cursor.x = Math.min(width - 1, Math.max(0, cursor.x + moves[event.key][0]));
  cursor.y = Math.min(height - 1, Math.max(0, cursor.y + moves[event.key][1]));
  draw();
});

function choose(group, attribute, value) {
  for (const button of $(group).children) button.setAttribute('aria-checked', button.dataset[attribute] === value);
}
const setKind = (value) => { kind = value; choose('#kinds', 'kind', value); };
const setTool = (value) => { tool = value; choose('#tools', 'tool', value); };
for (const button of $('#kinds').children) button.addEventListener('click', () => setKind(button.dataset.kind));
for (const button of $('#tools').children) button.addEventListener('click', () => setTool(button.dataset.tool));
const setSize = () => { $('#size-words').textContent = many(Number($('#size').value), 'pixel'); };
$('#size').addEventListener('input', setSize);
$('#heat').addEventListener('input', draw);
setKind('wrong');
setTool('brush');
setSize();

const undo = () => attempt(async () => {
  const { undone } = await post('api/undo', { image: open.image });
  say(undone === 'spread' ? 'Spread undone.' : 'Undone.');
});
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
    const asked = { image: open.image, how: button.dataset.how };
    const found = await attempt(() => post('api/preview', asked));
    if (!found) return;
    how = asked;
    button.setAttribute('aria-pressed', true);
    const whose = found.classes.length === 1 ? `all of class “${found.classes[0]}”: the other classes stay unmarked` : `of ${found.classes.length} classes`;
    $('#preview p').textContent = found.count ? `${found.estimated ? 'About ' : ''}${many(found.count, 'other image')}, ${whose}. Such as these:` : 'No other image matches.';
    $('#preview .strip').replaceChildren(...found.examples.map(example));
    $('#spread').hidden = !found.count;
    $('#preview').hidden = false;
    $('#preview').scrollIntoView({ block: 'nearest' });
  });
}

function example([image, down, right]) {
  const frame = make('span', { className: 'frame' }, thumbnail(image));
  const [width, height] = shared.state.size;
  for (const { tool: by, size, points } of open.about.strokes) {
    const half = by === 'brush' ? size / 2 : 0;
    const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
    const [x0, y0, x1, y1] = [Math.min(...xs) - half + right, Math.min(...ys) - half + down, Math.max(...xs) + half + right, Math.max(...ys) + half + down];
    const box = make('span', { className: 'box' });
    Object.assign(box.style, { left: `${100 * x0 / width}%`, top: `${100 * y0 / height}%`, width: `${100 * (x1 - x0) / width}%`, height: `${100 * (y1 - y0) / height}%` });
    frame.append(box);
  }
  return frame;
}

$('#spread').addEventListener('click', () => attempt(async () => {
  const asked = how;
  hidePreview();
  const { spread } = await post('api/spread', asked);
  say(spread ? `Spread to ${many(spread)}. Close this image, and train.` : 'No other image matches.');
}));

// From image to image, and out.
function step(by) {
  const next = shared.images[shared.images.indexOf(open.image) + by];
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
  if (event.ctrlKey || event.metaKey ? event.key !== 'z' : event.target.matches('select')) return;
  const keys = { 1: () => setKind('wrong'), 2: () => setKind('right'), 3: () => setKind('erase'), b: () => setTool('brush'), r: () => setTool('rectangle'), z: undo, n: () => step(1), p: () => step(-1) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
