// All samples: filters, sorting, and the sliders that move every card at once.

const FIRST = 12;
const MORE = 48;

class Gallery {
  constructor(section) {
    this.settings = { view: 0, blend: 0.5, shared: false, pool: data.pool };
    this.shown = FIRST;
    this.grid = element("div", { className: "grid" });
    this.count = element("p", { className: "count", role: "status" });
    this.more = element("p", { className: "more" });
    this.cards = new Map(); // made when they are first shown: a page may have thousands
    this.matching = [];
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) isIntersecting ? target.card.enter() : target.card.leave();
    }, { rootMargin: "500px 0px" });
    const keys = element("p", { className: "note keys", textContent: "Keys: / filters, v changes the view of all samples; "
      + "in a sample, n and p step to the next and the previous, arrows move sliders and, on the picture, from pixel to pixel." });
    section.append(this.filters(), this.sliders(), this.count, this.grid, this.more, keys);
    this.detail = new Detail(this.settings, () => this.matching);
    this.update();
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("beforeprint", () => this.print());
    window.addEventListener("afterprint", () => { this.shown = this.before ?? this.shown; this.update(); });
    this.follow();
  }

  follow() {
    const found = /^#sample-(\d+)$/.exec(location.hash);
    if (found && data.samples[found[1]]) {
      const id = Number(found[1]);
      this.detail.open(id, this.card(id).view);
    } else if (this.detail.dialog.open) this.detail.dialog.close();
  }

  card(id) {
    if (!this.cards.has(id)) this.cards.set(id, new Card(data.samples[id], id, this.settings));
    return this.cards.get(id);
  }

  // Paper has no window that cards come near: all that match are drawn.
  print() {
    this.before = this.shown;
    this.shown = Infinity;
    this.update();
    this.observer.disconnect();
    for (const id of this.matching) this.card(id).enter();
  }

  filters() {
    const changed = () => { this.shown = FIRST; this.update(); };
    this.search = element("input", { type: "search", placeholder: "Filter by name or class", "aria-label": "Filter by name or class",
      "aria-keyshortcuts": "/", oninput: changed });
    const classes = [...new Set(data.samples.flatMap((s) => [s.label, ...s.prediction]).filter((name) => name !== null))];
    classes.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    this.byClass = select("Class", [["", "every class"], ...classes.map((name) => [`=${name}`, name])], changed);
    this.byOutcome = select("Prediction", [["", "right or wrong"], ...outcomes()], changed);
    this.byError = select("Completeness error", [["", "any"], ["0:1e-6", "up to 1e−6"], ["1e-6:1e-3", "1e−6 to 1e−3"],
      ["1e-3:1e-2", "1e−3 to 1e−2"], ["1e-2:Infinity", "above 1e−2"]], changed);
    this.order = select("Sort by", [["", "as given"], ["name", "name"], ["class", "class"],
      ["error-down", "largest completeness error"], ["error-up", "smallest completeness error"],
      ["score-down", "highest score"], ["score-up", "lowest score"]], changed);
    this.byClass.box.hidden = classes.length < 2;
    this.byOutcome.box.hidden = this.byOutcome.select.options.length < 2;
    this.byError.box.hidden = data.samples.every((s) => worst(s) === null);
    const box = element("form", { className: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      element("label", { className: "search" }, element("span", { textContent: "Filter" }), this.search, element("kbd", { textContent: "/" })),
      this.byClass.box, this.byOutcome.box, this.byError.box, this.order.box);
    box.hidden = data.samples.length < 2;
    return box;
  }

  sliders() {
    const everything = { views: data.views.map((_, i) => i), name: "" };
    this.view = viewSlider(everything, 0, (view) => this.setView(view), "View of all samples");
    this.blend = blendSlider(this.settings.blend, (blend) => { this.settings.blend = blend; this.redraw(); }, "From image to heatmap, all samples");
    this.blend.box.hidden = !data.samples.some((sample) => sample.image);
    const pool = poolSlider(this.settings.pool, (to) => { this.settings.pool = to; this.redraw(); }, "Window that is summed over, all samples");
    pool.box.hidden = !data.samples.some((sample) => sample.shape);
    const shared = element("input", { type: "checkbox", onchange: () => { this.settings.shared = shared.checked; this.redraw(); } });
    const bar = colourBar();
    bar.root.querySelector(".ends").replaceChildren(element("span", { textContent: "against" }), element("span", { textContent: "for the target" }));
    const label = element("label", { className: "check", hidden: data.views.length < 2 }, shared, " one colour scale for all views of a sample");
    return element("div", { className: "sliders" }, this.view.box, this.blend.box, pool.box, bar.root, label);
  }

  setView(view) {
    this.settings.view = view;
    this.view.set(view);
    for (const card of this.cards.values()) card.setView(view);
  }

  // Dragging fires faster than the screen refreshes.
  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => { for (const card of this.cards.values()) card.draw(); });
  }

  update() {
    const found = data.samples.map((_, id) => id).filter((id) => this.matches(data.samples[id]));
    this.matching = sorted(found, this.order.select.value);
    const visible = this.matching.slice(0, this.shown).map((id) => this.card(id));
    this.observer.disconnect();
    this.grid.replaceChildren(...visible.map((card) => card.root));
    for (const card of visible) this.observer.observe(card.root);
    const all = data.samples.length;
    this.count.textContent = this.matching.length === all ? `${all} sample${all === 1 ? "" : "s"}` : `${this.matching.length} of ${all} samples`;
    this.more.replaceChildren();
    const left = this.matching.length - visible.length;
    const button = (text, shown) => element("button", { type: "button", textContent: text, onclick: () => { this.shown = shown; this.update(); } });
    if (left > 0) this.more.append(button(`Show ${Math.min(left, MORE)} more`, this.shown + MORE));
    if (left > MORE) this.more.append(" ", button(`Show all ${this.matching.length}`, Infinity));
    if (!this.matching.length) this.more.append("No sample matches these filters. ", element("button", { type: "button",
      textContent: "Clear them", onclick: () => this.clear() }));
  }

  clear() {
    this.search.value = "";
    for (const each of [this.byClass, this.byOutcome, this.byError]) each.select.value = "";
    this.update();
  }

  matches(sample) {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = [sample.name, sample.label, ...sample.prediction].join(" ").toLowerCase();
    if (!words.every((word) => text.includes(word))) return false;
    const name = this.byClass.select.value.slice(1);
    if (this.byClass.select.value && sample.label !== name && !sample.prediction.includes(name)) return false;
    if (this.byOutcome.select.value) {
      const [view, wanted] = this.byOutcome.select.value.split(":");
      const at = view === "any" ? 0 : sample.views.indexOf(Number(view));
      if (at < 0 || String(outcome(sample, at)) !== wanted) return false;
    }
    if (this.byError.select.value) {
      const [low, high] = this.byError.select.value.split(":").map(Number);
      const error = worst(sample);
      if (error === null || error > high || (low > 0 && error <= low)) return false;
    }
    return true;
  }
}

// Where predictions differ between views (before and after), each view has its own right and wrong.
function outcomes() {
  const known = data.samples.filter((s) => s.label !== null && s.prediction.some((p) => p !== null));
  if (!known.length) return [];
  if (known.every((s) => new Set(s.prediction).size === 1)) return [["any:true", "right"], ["any:false", "wrong"]];
  return data.views.flatMap((name, i) => [[`${i}:true`, `right: ${name}`], [`${i}:false`, `wrong: ${name}`]]);
}

function sorted(ids, by) {
  const [key, direction] = by.split("-");
  if (!key) return ids;
  const sign = direction === "down" ? -1 : 1;
  const value = {
    name: (s) => s.name, class: (s) => s.label ?? "", error: worst,
    score: (s) => (s.score.some((x) => x !== null) ? Math.max(...s.score.map(Number)) : null),
  }[key];
  return [...ids].sort((a, b) => {
    const [left, right] = [value(data.samples[a]), value(data.samples[b])];
    // What has no number comes last in either direction.
    if (left === null || right === null) return (left === null) - (right === null);
    if (typeof left === "string") return left.localeCompare(right, undefined, { numeric: true });
    return left === right ? 0 : sign * (left < right ? -1 : 1);
  });
}

function select(label, options, changed) {
  const made = element("select", { onchange: changed }, ...options.map(([value, text]) => element("option", { value, textContent: text })));
  return { select: made, box: element("label", {}, element("span", { textContent: label }), made) };
}
