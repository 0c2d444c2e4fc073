// Features of a table, the largest attribution first.

class Bars {
  constructor(sample, payload, { top = 8 } = {}) {
    this.names = data.features[sample.features];
    this.payload = payload;
    this.top = top;
    this.root = element("div", { className: "bars", role: "list" });
  }

  draw(view, _blend, shared) {
    const bars = this.payload.bars;
    const current = bars[view];
    const order = current.map((_, i) => i).sort((a, b) => Math.abs(current[b]) - Math.abs(current[a])).slice(0, this.top);
    const pool = shared ? bars.flat() : current;
    const limit = pool.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
    const rest = current.length - order.length;
    this.root.replaceChildren(...order.map((i) => this.bar(i, current[i], limit)));
    if (rest > 0) {
      const sum = current.reduce((total, value) => total + value, 0) - order.reduce((total, i) => total + current[i], 0);
      this.root.append(element("p", { textContent: `${rest} other${rest > 1 ? "s" : ""} add up to ${number(sum, true)}` }));
    }
  }

  bar(i, value, limit) {
    const given = this.payload.values ? ` = ${this.payload.values[i]}` : "";
    const fill = element("span", { className: value < 0 ? "fill negative" : "fill positive" });
    fill.style.width = `${(50 * Math.abs(value)) / limit}%`;
    return element("div", { className: "bar", role: "listitem", title: `${this.names[i]}${given}: ${number(value, true)}` },
      element("span", { className: "feature", textContent: this.names[i] + given }),
      element("span", { className: "track" }, fill),
      element("span", { className: "value", textContent: number(value, true) }));
  }
}

function drawing(sample, payload, options) {
  return payload.bars ? new Bars(sample, payload, options) : new Picture(sample, payload, options);
}
