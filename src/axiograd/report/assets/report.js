// The gallery: one view of every sample at a time, painted when it comes near the window; a chosen sample shows all.

const form = document.querySelector(".toolbar");
const grid = document.querySelector(".grid");
const cards = [...document.querySelectorAll(".grid .card")];
const known = new Map(cards.map((card) => [card, JSON.parse(card.dataset.sample)]));
const unpacked = new WeakMap();

function settings() {
  const chosen = new FormData(form);
  return { view: chosen.get("view"), show: chosen.get("show") ?? "map", side: Number(chosen.get("side")), shared: chosen.has("shared") };
}

// Levels are square roots, so that small attributions keep their precision.
function values(canvas) {
  if (!unpacked.has(canvas)) {
    const bytes = atob(canvas.dataset.levels);
    unpacked.set(canvas, Float64Array.from(bytes, (byte) => {
      const level = (byte.charCodeAt(0) << 24) >> 24;
      return Math.sign(level) * (level / 127) ** 2 * canvas.dataset.largest;
    }));
  }
  return unpacked.get(canvas);
}

// What is stored are sums over blocks of pixels; windows are whole blocks.
function windows(canvas, side) {
  const blocks = Math.max(1, Math.round(side / canvas.dataset.block));
  return Heat.windows(values(canvas), [1, 1, canvas.height, canvas.width], blocks);
}

function paint(picture, { show, side, shared }) {
  const canvas = picture.querySelector("canvas"), image = picture.querySelector("img"), row = picture.closest(".row");
  // At the top the image stands beside its maps.
  const wanted = image && row.closest(".grid") ? show : "map";
  const state = [wanted, side, shared].join();
  if (picture.dataset.state === state) return;
  picture.dataset.state = state;
  picture.dataset.show = wanted;
  if (image && !image.src) image.src = row.querySelector(".original img").src;
  const alike = shared ? [...row.querySelectorAll("canvas")] : [canvas];
  const end = Math.max(...alike.map((each) => Heat.limit(windows(each, side).sums)));
  Heat.paint(canvas, windows(canvas, side), { overlay: wanted === "overlay", end });
  const told = picture.closest(".view").querySelector(".end");
  if (told) told.textContent = `±${number(end)}`;
}

function number(value) {
  const tiny = value !== 0 && Math.abs(value) < 1e-3;
  return (tiny ? value.toExponential(1) : String(Number(value.toPrecision(3)))).replace(/-/g, "−");
}

const near = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? near.add(target) : near.delete(target);
  draw();
}, { rootMargin: "400px 0px" });

function draw(all = [...near]) {
  const now = settings();
  for (const card of all) {
    const views = [...card.querySelectorAll(".view")];
    const chosen = views.find((each) => each.dataset.view === now.view) ?? views[0];
    for (const each of views) each.classList.toggle("chosen", each === chosen);
    for (const each of card.querySelectorAll(".picture")) paint(each, now);
  }
}

function arrange() {
  const words = (form.elements.find?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const by = form.elements.sort?.value;
  const order = by ? [...cards].sort((a, b) => {
    const [left, right] = [known.get(a)[by], known.get(b)[by]];
    return by === "name" ? left.localeCompare(right, undefined, { numeric: true }) : (right ?? -Infinity) - (left ?? -Infinity);
  }) : cards;
  grid.append(...order);
  for (const card of cards) card.hidden = !words.every((word) => known.get(card).words.includes(word));
  const shown = cards.filter((card) => !card.hidden).length;
  const count = form.querySelector(".count");
  if (count) count.textContent = shown === cards.length ? `${shown} samples` : `${shown} of ${cards.length} samples`;
}

function paintColours() {
  const bar = form.querySelector(".colour-bar canvas");
  if (bar) Heat.paintBar(bar, { overlay: settings().show === "overlay" });
}

// The value at the pointer: that of a window, with the pixels that it is the sum of.
function read(event) {
  const picture = event.target.closest?.(".grid .picture");
  for (const each of document.querySelectorAll(".picture output")) each.hidden = each.parentElement !== picture;
  if (!picture) return;
  const canvas = picture.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const { sums, columns, side } = windows(canvas, settings().side);
  const at = (share, size) => Math.floor(Math.max(0, Math.min(size - 1, Math.floor(share * size))) / side);
  const column = at((event.clientX - box.left) / box.width, canvas.width);
  const row = at((event.clientY - box.top) / box.height, canvas.height);
  const pixels = side * canvas.dataset.block;
  const range = (place) => (pixels === 1 ? place : `${place * pixels}–${(place + 1) * pixels - 1}`);
  const value = sums[row * columns + column];
  picture.querySelector("output").textContent = `row ${range(row)}, column ${range(column)}: ${value > 0 ? "+" : ""}${number(value)}`;
}

if (form) {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (["find", "sort"].includes(event.target.name)) arrange();
    paintColours();
    draw();
  });
  document.addEventListener("pointermove", read);
  document.addEventListener("pointerdown", read);
  grid.addEventListener("click", (event) => {
    const card = event.target.closest(".card");
    if (event.target.closest(".picture, .bars") && !card.matches(":target")) location.hash = card.id;
  });
  window.addEventListener("beforeprint", () => draw(cards)); // paper has no window to come near
  arrange();
  paintColours();
  for (const card of document.querySelectorAll(".card")) observer.observe(card);
}
