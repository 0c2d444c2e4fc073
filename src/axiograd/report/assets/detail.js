// One sample on a page of its own: large, all views side by side, every number.

class Detail {
  constructor(settings, neighbours) {
    this.settings = settings;
    this.neighbours = neighbours;
    this.body = element("div", { className: "detail" });
    this.dialog = element("dialog", { "aria-label": "Sample" }, this.body);
    this.dialog.addEventListener("close", () => {
      if (location.hash.startsWith("#sample-")) history.replaceState(null, "", "#samples");
    });
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const arrow = isTyping(event.target) ? "" : event.key;
      if (event.key === "p" || arrow === "ArrowLeft") this.step(-1);
      if (event.key === "n" || arrow === "ArrowRight") this.step(1);
    });
    document.body.append(this.dialog);
  }

  step(by) {
    const order = this.neighbours();
    const next = order[order.indexOf(this.id) + by];
    if (next !== undefined) location.hash = `sample-${next}`;
  }

  // Stepping rebuilds the page; whoever pressed a button stays on it.
  focus(kept) {
    const again = kept && this.body.querySelector(`[data-keep="${kept}"]:enabled`);
    const first = this.sample.views.length > 1 ? this.slider.input : this.body.querySelector("[data-keep=close]");
    (again || first).focus({ preventScroll: true });
  }

  open(id, view) {
    const kept = this.dialog.open ? document.activeElement?.dataset.keep : null;
    this.id = id;
    this.sample = data.samples[id];
    const payload = readPayload(id);
    this.view = Math.min(view, this.sample.views.length - 1);
    this.blend = this.settings.blend;
    this.pool = this.settings.pool;
    this.large = drawing(this.sample, payload, { focusable: true, top: 30 });
    this.small = payload.bars ? [] : this.sample.views.map((_, i) => ({ view: i, drawn: drawing(this.sample, payload) }));
    this.slider = viewSlider(this.sample, this.view, (to) => this.show(to), "View");
    this.slider.input.dataset.keep = "view";
    const blend = blendSlider(this.blend, (to) => { this.blend = to; this.show(this.view); }, "From image to heatmap");
    blend.box.hidden = !payload.image;
    const pool = poolSlider(this.pool, (to) => { this.pool = to; this.show(this.view); }, "Window that is summed over");
    pool.input.dataset.keep = "pool";
    pool.box.hidden = Boolean(payload.bars);
    this.bar = payload.bars ? null : colourBar();
    this.table = element("div", { className: "table" });
    const order = this.neighbours();
    const place = order.indexOf(id);
    const button = (text, label, by) => element("button", {
      type: "button", textContent: text, "aria-label": label, title: label, "data-keep": by, disabled: order[place + by] === undefined,
      onclick: () => this.step(by),
    });
    this.body.replaceChildren(
      element("div", { className: "detail-head" },
        element("h2", { textContent: this.sample.name }),
        element("div", { className: "buttons" }, button("←", "Previous sample (p)", -1), button("→", "Next sample (n)", 1),
          element("button", { type: "button", textContent: "Close", "data-keep": "close", onclick: () => this.dialog.close() }))),
      element("div", { className: "detail-body" },
        element("div", { className: payload.bars ? "large tabular" : "large" },
          this.large.root, this.bar && this.bar.root, this.slider.box, blend.box, pool.box),
        element("div", { className: "beside" }, this.multiples(payload), this.details(), this.table)));
    this.show(this.view);
    if (!this.dialog.open) this.dialog.showModal();
    this.focus(kept);
  }

  multiples(payload) {
    if (payload.bars || this.small.length + Boolean(payload.image) < 2) return null;
    const image = payload.image
      ? [element("figure", {}, element("img", { src: payload.image, alt: "", className: "plain" }),
        element("figcaption", { textContent: "image" }))] : [];
    const maps = this.small.map(({ view, drawn }) => {
      const name = data.views[this.sample.views[view]];
      return element("figure", {}, drawn.root, element("figcaption", {},
        element("button", { type: "button", textContent: name, onclick: () => { this.slider.set(view); this.show(view); } })));
    });
    return element("div", { className: "multiples" }, ...image, ...maps);
  }

  show(view) {
    this.view = view;
    this.large.draw(view, this.blend, this.settings.shared, this.pool);
    if (this.bar) this.bar.set(this.large.limit(view, this.settings.shared, this.pool));
    for (const { view: each, drawn } of this.small) {
      drawn.draw(each, 1, this.settings.shared, this.pool);
      drawn.root.closest("figure")?.classList.toggle("chosen", each === view);
    }
    this.numbers();
  }

  numbers() {
    const { sample } = this;
    const columns = [["predicted", (i) => sample.prediction[i]], ["score", (i) => sample.score[i]],
      ["completeness error", (i) => sample.completeness[i]], ["sum of attributions", (i) => this.sum(i)]]
      .filter(([, cell]) => sample.views.some((_, i) => cell(i) !== null));
    const head = element("tr", {}, element("td"), ...columns.map(([name]) =>
      element("th", { scope: "col", textContent: name, className: name === "predicted" ? "" : "number" })));
    const body = sample.views.map((view, i) => element("tr", {},
      element("th", { scope: "row", textContent: data.views[view], className: i === this.view ? "chosen" : "" }),
      ...columns.map(([name, cell]) => element("td", {
        textContent: number(cell(i)),
        className: name === "predicted" ? { true: "yes", false: "no" }[outcome(sample, i)] ?? "" : "number",
      }))));
    this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  }

  sum(view) {
    const { payload } = this.large;
    return payload.bars ? payload.bars[view].reduce((total, value) => total + value, 0) : payload.maps[view].sum;
  }

  details() {
    const { label, details } = this.sample;
    const entries = [...(label === null ? [] : [["true class", label]]), ...Object.entries(details)];
    if (!entries.length) return null;
    return element("dl", { className: "facts" }, ...entries.map(([name, value]) =>
      element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
  }
}

function colourBar() {
  const canvas = element("canvas", { "aria-hidden": "true" });
  paintBar(canvas);
  const ends = ["", "0", ""].map((text) => element("span", { textContent: text }));
  const set = (limit) => {
    ends[0].textContent = number(-limit);
    ends[2].textContent = number(limit, true);
  };
  return { root: element("div", { className: "colour-bar" }, canvas, element("div", { className: "ends" }, ...ends)), set };
}
