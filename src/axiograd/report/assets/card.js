// One sample in the gallery. Its picture exists only while it is near the window.

function outcome(sample, view) {
  const prediction = sample.prediction[view];
  return sample.label === null || prediction === null ? null : prediction === sample.label;
}

// Infinity and NaN travel as words.
function size(value) {
  return value === null ? null : Math.abs(Number(value));
}

function worst(sample) {
  const errors = sample.completeness.map(size).filter((error) => error !== null);
  return errors.length ? Math.max(...errors.map((error) => (Number.isNaN(error) ? Infinity : error))) : null;
}

function chips(sample, view) {
  const right = outcome(sample, view);
  const prediction = sample.prediction[view];
  const made = [];
  if (sample.label !== null && right !== true) made.push(element("span", { className: "chip", textContent: sample.label }));
  if (prediction !== null) {
    const sign = right === null ? "" : right ? "✓ " : "✗ ";
    // The score is that of what was attributed, which need not be what was predicted.
    const { target } = sample.details;
    const others = target !== undefined && target !== prediction;
    const score = sample.score[view] === null ? "" : ` ${number(sample.score[view])}`;
    const kind = right === null ? "chip" : right ? "chip yes" : "chip no";
    const words = right === null ? "predicted" : right ? "predicted, correct" : "predicted, wrong";
    made.push(element("span", { className: kind, textContent: sign + prediction + (others ? "" : score), title: words }));
    if (others) made.push(element("span", { className: "chip", textContent: `for ${target}${score}`, title: "attributed" }));
  }
  return made;
}

class Card {
  constructor(sample, id, settings) {
    this.sample = sample;
    this.id = id;
    this.settings = settings;
    this.view = this.nearest(settings.view);
    this.frame = element("div", { className: "frame" });
    if (sample.shape) this.frame.style.aspectRatio = `${sample.shape[1]} / ${sample.shape[0]}`;
    this.slider = viewSlider(sample, this.view, (view) => { this.view = view; this.draw(); }, `View of ${sample.name}`);
    this.chips = element("p", { className: "chips" });
    this.note = element("p", { className: "note" });
    const title = element("h3", {}, element("a", { href: `#sample-${id}`, textContent: sample.name, title: sample.name }));
    this.root = element("article", { className: "card" }, this.frame, this.slider.box, title, this.chips, this.note);
    this.frame.addEventListener("click", () => { location.hash = `sample-${id}`; });
    this.root.card = this;
    this.describe();
  }

  // Samples may lack some of the page's views; the closest one is shown instead.
  nearest(view) {
    const at = this.sample.views.indexOf(view);
    return at >= 0 ? at : Math.min(view, this.sample.views.length - 1);
  }

  // Cards away from the window catch up when they come near it.
  setView(view) {
    this.view = this.nearest(view);
    this.draw();
  }

  describe() {
    this.chips.replaceChildren(...chips(this.sample, this.view));
    const error = this.sample.completeness[this.view];
    this.note.textContent = error === null ? "" : `completeness error ${number(error)}`;
    this.note.hidden = error === null;
  }

  enter() {
    if (this.drawn) return;
    this.drawn = drawing(this.sample, readPayload(this.id), { top: 6 });
    this.frame.replaceChildren(this.drawn.root);
    this.draw();
  }

  leave() {
    this.drawn = null;
    this.frame.replaceChildren();
  }

  draw() {
    if (!this.drawn) return;
    this.slider.set(this.view);
    this.describe();
    this.drawn.draw(this.view, this.settings.blend, this.settings.shared, this.settings.pool);
  }
}
