// The image below, its attribution above, and the value under the pointer or the cursor.

class Picture {
  constructor(sample, payload, { focusable = false } = {}) {
    [this.height, this.width] = sample.shape;
    this.payload = payload;
    this.unpacked = new Map();
    this.canvas = element("canvas", { width: this.width, height: this.height });
    this.image = payload.image
      ? element("img", { src: payload.image, alt: "", draggable: false }) : null;
    this.cursor = element("div", { className: "cursor", hidden: true });
    this.readout = element("output", { className: "readout", hidden: true });
    this.root = element("div", { className: "picture" }, this.image, this.canvas, this.boxes(), this.cursor, this.readout);
    // Small images show their pixels; large ones are not made jagged.
    this.root.classList.toggle("smooth", this.width > 160);
    this.root.style.aspectRatio = `${this.width} / ${this.height}`;
    if (focusable) {
      this.root.tabIndex = 0;
      this.root.setAttribute("role", "application");
      this.root.setAttribute("aria-label", `${sample.name}: arrow keys move over the pixels and read their values`);
      this.root.addEventListener("keydown", (event) => this.move(event));
      this.root.addEventListener("blur", () => this.leave());
    }
    this.root.addEventListener("pointermove", (event) => this.point(event));
    this.root.addEventListener("pointerdown", (event) => this.point(event));
    this.root.addEventListener("pointerleave", () => this.leave());
  }

  boxes() {
    if (!this.payload.boxes.length) return null;
    const block = this.payload.block;
    const svg = svgElement("svg", { viewBox: `0 0 ${this.width} ${this.height}`, "aria-hidden": "true" });
    // A little inside, because half of a line on the very edge would be cut off.
    const inside = (at, size) => Math.max(0.007 * size, Math.min(0.993 * size, at / block));
    for (const box of this.payload.boxes) {
      const [left, right] = [inside(box[0], this.width), inside(box[2], this.width)];
      const [top, bottom] = [inside(box[1], this.height), inside(box[3], this.height)];
      const place = { x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top) };
      svg.append(svgElement("rect", { ...place, class: "halo" }), svgElement("rect", place));
    }
    return svg;
  }

  values(view) {
    if (!this.unpacked.has(view)) this.unpacked.set(view, unpack(this.payload.maps[view]));
    return this.unpacked.get(view);
  }

  // The side of a window in stored pixels; 1 shows what is stored.
  window(pool) {
    return Math.max(1, Math.round(pool / this.payload.block));
  }

  pooled(view, pool) {
    const size = this.window(pool);
    if (size === 1) return this.values(view);
    const key = `${view}/${size}`;
    if (!this.unpacked.has(key)) {
      this.unpacked.set(key, inWindows(this.values(view), this.width, this.height, size, this.payload.block ** 2));
    }
    return this.unpacked.get(key);
  }

  limit(view, shared, pool = 1) {
    const views = shared ? this.payload.maps.map((_, i) => i) : [view];
    if (this.window(pool) === 1) return Math.max(...views.map((i) => this.payload.maps[i].limit));
    return Math.max(...views.map((i) => percentile(this.pooled(i, pool), data.clip)));
  }

  draw(view, blend, shared, pool = 1) {
    this.view = view;
    this.pool = pool;
    const shown = this.image ? blend : 1;
    paint(this.canvas, this.pooled(view, pool), this.limit(view, shared, pool), shown);
    if (this.image) {
      this.image.style.filter = `grayscale(${Math.min(1, 2 * shown)})`;
      this.image.hidden = shown === 1;
    }
    if (!this.readout.hidden) this.read();
  }

  point(event) {
    const box = this.root.getBoundingClientRect();
    const clamp = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
    this.column = clamp((event.clientX - box.left) / box.width, this.width);
    this.row = clamp((event.clientY - box.top) / box.height, this.height);
    this.read();
  }

  move(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const [row, column] = [this.row ?? Math.floor(this.height / 2), this.column ?? Math.floor(this.width / 2)];
    const moved = this.row === undefined ? [0, 0] : step;
    this.row = Math.max(0, Math.min(this.height - 1, row + moved[0]));
    this.column = Math.max(0, Math.min(this.width - 1, column + moved[1]));
    this.read();
  }

  read() {
    const value = this.pooled(this.view, this.pool)[this.row * this.width + this.column];
    const { block } = this.payload;
    const size = this.window(this.pool);
    const side = size * block;
    const range = (at) => (side === 1 ? `${at}` : `${Math.floor(at / size) * side}–${(Math.floor(at / size) + 1) * side - 1}`);
    const words = size > 1 ? " (sum)" : block > 1 ? " (mean)" : "";
    this.readout.textContent = `row ${range(this.row)}, column ${range(this.column)}: ${number(value, true)}${words}`;
    this.readout.hidden = false;
    this.cursor.hidden = false;
    const [left, top] = [this.column, this.row].map((at) => Math.floor(at / size) * size);
    this.cursor.style.left = `${(100 * left) / this.width}%`;
    this.cursor.style.top = `${(100 * top) / this.height}%`;
    this.cursor.style.width = `${(100 * Math.min(size, this.width - left)) / this.width}%`;
    this.cursor.style.height = `${(100 * Math.min(size, this.height - top)) / this.height}%`;
    this.readout.classList.toggle("above", this.row > 0.7 * this.height);
  }

  leave() {
    this.readout.hidden = true;
    this.cursor.hidden = true;
  }
}
