// Elements are made from text only: nothing that comes from the data is ever read as HTML.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svgElement(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A slider whose stops are names: two stand at its ends, of more the chosen one is shown; one needs no slider.
function viewSlider(sample, view, onchange, label) {
  const names = sample.views.map((index) => data.views[index]);
  const pair = names.length === 2;
  const stops = (pair ? names : names.slice(0, 1)).map((name) => element("span", { className: "stop", textContent: name, title: name }));
  const input = element("input", {
    type: "range", min: 0, max: names.length - 1, step: 1, "aria-label": label, className: "views-input",
    oninput: () => { set(Number(input.value)); onchange(Number(input.value)); },
  });
  function set(to) {
    input.value = to;
    input.setAttribute("aria-valuetext", names[to]);
    stops.forEach((stop, i) => stop.classList.toggle("chosen", !pair || i === to));
    if (!pair) stops[0].textContent = stops[0].title = names[to];
  }
  stops.forEach((stop, i) => pair && stop.addEventListener("click", () => { set(i); onchange(i); }));
  set(view);
  const box = element("div", { className: "slider views", hidden: names.length < 2 }, stops[0], input, stops[1] ?? null);
  return { box, input, set };
}

function blendSlider(blend, onchange, label) {
  const input = element("input", {
    type: "range", min: 0, max: 100, step: 1, value: 100 * blend, "aria-label": label,
    "aria-valuetext": blendWords(blend),
    oninput: () => {
      input.setAttribute("aria-valuetext", blendWords(input.value / 100));
      onchange(input.value / 100);
    },
  });
  const box = element("label", { className: "slider blend" }, element("span", { textContent: "image" }), input,
    element("span", { textContent: "heatmap" }));
  return { box, input };
}

function blendWords(blend) {
  return `${Math.round(100 * blend)} % heatmap`;
}

// Windows over which attributions are summed; one click on "pixels" shows the raw map.
const WINDOWS = [1, 2, 4, 8, 16, 32];

function poolSlider(pool, onchange, label) {
  const nearest = (size) => WINDOWS.reduce((best, each, i) => (Math.abs(each - size) < Math.abs(WINDOWS[best] - size) ? i : best), 0);
  const shown = element("span");
  const raw = element("button", { type: "button", className: "raw", textContent: "pixels", title: "Show the raw map",
    onclick: () => { set(1); onchange(1); } });
  const input = element("input", { type: "range", min: 0, max: WINDOWS.length - 1, step: 1, "aria-label": label,
    oninput: () => { set(WINDOWS[input.value]); onchange(WINDOWS[input.value]); } });
  function set(size) {
    input.value = nearest(size);
    shown.textContent = size === 1 ? "raw map" : `sums of ${size} × ${size}`;
    input.setAttribute("aria-valuetext", shown.textContent);
    raw.disabled = size === 1;
  }
  set(pool);
  return { box: element("div", { className: "slider pool" }, raw, input, shown), input, set };
}

function isTyping(target) {
  return target.closest("input, select, textarea") !== null;
}
