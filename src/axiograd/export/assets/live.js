// The page: photo or camera in, classes, heat map and gap out.

const live = { about: null, source: null, frame: null, target: -1, number: 0, busy: false, again: false, last: null };
const $ = (id) => document.getElementById(id);
const LARGEST_SIDE = 4096;
const SHOWN = 6;
const LISTED = 5;

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

function state(value) {
  document.documentElement.dataset.state = value;
}

function number(value) {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1) : value.toPrecision(4);
  return text.replace(/-/g, "−");
}

function put(id, value, text) {
  $(id).dataset.value = value;
  $(id).textContent = text ?? number(value);
}

const contrast = () => 10 ** (Number($("contrast").value) / 100);
const side = () => 2 ** Number($("detail").value);
const className = (index) => live.about.classes[index] ?? `class ${index}`;

// ---- what is looked at

function show(source, width, height) {
  const scale = Math.min(1, LARGEST_SIDE / Math.max(width, height));
  const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff"; // behind what is transparent, as in Python
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  live.source = canvas;
  live.frame = context.getImageData(0, 0, canvas.width, canvas.height);
  $("invite").hidden = true;
  drawPhoto();
  ask();
}

async function open(file) {
  stopCamera();
  live.opening = file;
  let bitmap;
  try {
    // As the file has it: a colour profile would change the numbers.
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" });
  } catch {
    say(`${file.name || "That"} is not a picture that this browser can read.`, true);
    return;
  }
  if (live.opening === file) show(bitmap, bitmap.width, bitmap.height); // the last one that was given
  bitmap.close();
}

// What the model sees: short side to `resize`, centre crop, contrast around the baseline's colour.
function drawPhoto() {
  const { resize, crop, zero } = live.about;
  const canvas = $("photo"), { width, height } = live.source;
  canvas.width = canvas.height = 2 * crop;
  const part = resize === null ? crop : (crop * Math.min(width, height)) / resize;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(live.source, (width - part) / 2, (height - part) / 2, part, part, 0, 0, canvas.width, canvas.height);
  const by = contrast();
  if (by === 1) return;
  const picture = context.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < picture.data.length; i++) {
    const c = i % 4;
    if (c < 3) picture.data[i] = zero[c] + by * (picture.data[i] - zero[c]);
  }
  context.putImageData(picture, 0, 0);
}

// ---- asking and answering

const worker = location.protocol === "file:" ? null : new Worker("worker.js", { type: "module" });

function ask() {
  if (!live.frame || !live.ready) return;
  if (live.busy) {
    live.again = true;
    return;
  }
  live.busy = true;
  live.again = false;
  live.number += 1;
  state("busy");
  const contrasts = contrast() === 1 ? [1] : [1, contrast()];
  const { data, width, height } = live.frame;
  worker.postMessage({ number: live.number, pixels: data, width, height, target: live.target, contrasts });
}

function answered({ target, answers }) {
  live.busy = false;
  live.last = answers.at(-1);
  live.first = answers[0];
  live.explained = target === -1 ? largest(live.last.output) : target;
  render();
  state("done");
  if (live.stream) requestAnimationFrame(nextFrame);
  else if (live.again) ask();
}

function largest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

function render() {
  const { output, attribution, dims, gap, milliseconds } = live.last;
  const score = output[live.explained];
  let total = 0;
  for (const each of attribution) total += each;
  put("score", score);
  put("total", total);
  put("gap", gap, Number.isFinite(gap) ? gap.toExponential(1).replace(/-/g, "−") : "not defined");
  put("time", milliseconds, `${Math.round(milliseconds)} ms`);
  paint();
  listClasses(output);
  $("heat").setAttribute("aria-label", `Heat map for ${className(live.explained)}, score ${number(score)}`);
  tellContrast();
  say(live.stream ? "Camera on; press C to stop." : "");
}

function paint() {
  const view = document.querySelector("[name=view]:checked").value;
  const overlay = view === "overlay";
  $("drop").dataset.view = view;
  Heat.paintBar($("bar"), { overlay });
  if (!live.last) return;
  const canvas = $("heat");
  canvas.width = canvas.height = 2 * live.about.crop;
  Heat.paint(canvas, Heat.windows(live.last.attribution, live.last.dims, side()), { overlay });
}

// How far classes and map are from those at full contrast, once the power of the contrast is taken out.
function tellContrast() {
  const { contrast: by, output, attribution } = live.last, { degree } = live.about;
  const power = by ** degree;
  const note = $("moved");
  if (by === 1) {
    note.textContent = "Lower the contrast: all scores shrink together, and the classes and the heat map do not change.";
    delete note.dataset.value;
    return;
  }
  const moved = Math.max(difference(output, live.first.output, power), difference(attribution, live.first.attribution, power));
  note.dataset.value = moved;
  const same = largest(output) === largest(live.first.output) ? "The answer is the same" : "The answer changed";
  const bold = document.createElement("b");
  bold.textContent = `${(100 * moved).toPrecision(1)} %`;
  note.replaceChildren(`${same}. Apart from their scale, scores and heat map changed by `, bold, " (rounding, if small).");
  if (moved < 1e-3) note.lastChild.textContent = ", which is rounding.";
}

function difference(now, then, power) {
  let most = 0, off = 0;
  for (let i = 0; i < now.length; i++) {
    most = Math.max(most, Math.abs(then[i]));
    off = Math.max(off, Math.abs(now[i] / power - then[i]));
  }
  return most === 0 ? off : off / most;
}

// ---- the list of classes

const rows = Array.from({ length: SHOWN }, () => {
  const row = document.createElement("button");
  row.type = "button";
  row.hidden = true;
  row.setAttribute("role", "radio");
  row.append(document.createElement("span"), document.createElement("span"));
  row.addEventListener("click", () => explain(Number(row.dataset.index)));
  $("classes").append(row);
  return row;
});

function listClasses(output) {
  const order = Array.from(output.keys()).sort((a, b) => output[b] - output[a]).slice(0, LISTED);
  if (!order.includes(live.explained)) order.push(live.explained);
  const best = Math.max(...order.map((i) => Math.abs(output[i])), 1e-30);
  rows.forEach((row, place) => {
    const index = order[place];
    row.hidden = index === undefined;
    if (row.hidden) return;
    const chosen = index === live.explained;
    row.dataset.index = index;
    row.dataset.value = output[index];
    row.style.setProperty("--share", Math.max(0, output[index] / best));
    row.firstChild.textContent = className(index);
    row.firstChild.title = className(index);
    row.lastChild.textContent = number(output[index]);
    row.setAttribute("aria-checked", String(chosen));
    row.tabIndex = chosen ? 0 : -1;
  });
  $("largest").hidden = live.target === -1;
}

function explain(index) {
  live.target = index;
  ask();
}

$("classes").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const shown = rows.filter((row) => !row.hidden);
  const next = shown[(shown.indexOf(document.activeElement) + step + shown.length) % shown.length];
  next.focus();
  next.click();
});

$("largest").addEventListener("click", () => explain(-1));
$("other").addEventListener("change", ({ target: field }) => {
  const text = field.value.trim();
  const count = live.last?.output.length ?? live.about.classes.length;
  let index = live.about.classes.indexOf(text);
  if (index < 0) index = live.about.classes.findIndex((name) => text && name.toLowerCase().includes(text.toLowerCase()));
  if (index < 0 && /^\d+$/.test(text) && Number(text) < count) index = Number(text);
  field.setAttribute("aria-invalid", String(index < 0 && text !== ""));
  if (index < 0 && text) say(`There is no class ${text}; there are ${count}.`, true);
  else if (text) explain(index);
});

// ---- the camera

async function startCamera() {
  if (!navigator.mediaDevices?.getUserMedia) {
    say("Browsers allow the camera only on https pages and on localhost.", true);
    return;
  }
  if (live.starting) return;
  live.starting = true;
  live.opening = null;
  try {
    live.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: live.facing ?? "environment" } });
  } catch (error) {
    say(error.name === "NotFoundError" ? "There is no camera." : `The browser did not allow the camera: ${error.message}`, true);
    return;
  } finally {
    live.starting = false;
  }
  const video = $("video");
  video.srcObject = live.stream;
  await video.play();
  $("camera").setAttribute("aria-pressed", "true");
  $("turn").hidden = false;
  nextFrame();
}

function stopCamera() {
  live.stream?.getTracks().forEach((track) => track.stop());
  live.stream = null;
  $("camera").setAttribute("aria-pressed", "false");
  $("turn").hidden = true;
}

function nextFrame() {
  const video = $("video");
  if (!live.stream) return;
  if (document.hidden || !video.videoWidth) setTimeout(nextFrame, 200);
  else if (!live.busy) show(video, video.videoWidth, video.videoHeight);
}

$("camera").addEventListener("click", () => (live.stream ? (stopCamera(), say("")) : startCamera()));
$("turn").addEventListener("click", () => {
  live.facing = live.facing === "user" ? "environment" : "user";
  stopCamera();
  startCamera();
});

// ---- photos, sliders, keys

for (const id of ["choose", "invite"]) $(id).addEventListener("click", () => $("file").click());
$("file").addEventListener("change", ({ target: field }) => {
  if (field.files[0]) open(field.files[0]);
  field.value = "";
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  $("drop").classList.add("over");
});
addEventListener("dragleave", (event) => event.relatedTarget ?? $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  else say("That is not a file: save the picture first, or paste it.", true);
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files[0]) open(event.clipboardData.files[0]);
});
addEventListener("keydown", (event) => {
  if (event.target.matches("#other") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "o") $("file").click();
  if (event.key === "c") $("camera").click();
  if (event.key === "Escape") explain(-1);
});

function labels() {
  $("detail-value").textContent = side() === 1 ? "pixels" : `${side()} × ${side()}`;
  $("contrast-value").textContent = `${Math.round(100 * contrast())} %`;
}
$("detail").addEventListener("input", () => (labels(), paint()));
for (const choice of document.getElementsByName("view")) choice.addEventListener("change", paint);
$("contrast").addEventListener("input", () => {
  labels();
  if (live.source) drawPhoto();
  ask();
});
$("contrast").addEventListener("dblclick", ({ target: slider }) => {
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
});

// ---- beginning

async function begin() {
  labels();
  state("loading");
  if (!worker) {
    say("This page needs a server: run `python -m http.server` in its folder, and open http://localhost:8000.", true);
    state("failed");
    return;
  }
  const about = await fetch("page.json");
  if (!about.ok) throw new Error(`page.json: ${about.status} ${about.statusText}`);
  live.about = await about.json();
  document.title = `${live.about.name} live`;
  $("name").textContent = live.about.name;
  $("card").textContent = live.about.card;
  $("names").append(...live.about.classes.map((name) => new Option(name)));
  paint();
  worker.onmessage = ({ data }) => {
    if (data.kind === "answer") answered(data);
    else if (data.kind === "ready") {
      live.ready = true;
      say("Ready.");
      state("ready");
      ask();
    } else {
      live.busy = false;
      say(`The model did not run: ${data.message}`, true);
      state("failed");
    }
  };
  worker.onerror = () => {
    say("The model's worker did not start: are worker.js and ort/ there, and is the browser not older than 2023?", true);
    state("failed");
  };
}

begin().catch((error) => {
  say(`The page could not be loaded: ${error.message}`, true);
  state("failed");
});
