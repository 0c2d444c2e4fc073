// Attributions as they are stored, and the colours that they get.

const data = JSON.parse(document.getElementById("data").textContent);
const LEVELS = 127;
const STEPS = 255; // colours on each side of zero

const lookup = (() => {
  const anchors = data.anchors.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const table = new Uint8ClampedArray((2 * STEPS + 1) * 3);
  for (let i = 0; i <= 2 * STEPS; i++) {
    const place = (i / (2 * STEPS)) * (anchors.length - 1);
    const left = Math.min(Math.floor(place), anchors.length - 2);
    for (let c = 0; c < 3; c++) {
      table[3 * i + c] = anchors[left][c] + (place - left) * (anchors[left + 1][c] - anchors[left][c]);
    }
  }
  return table;
})();

function readPayload(number) {
  return JSON.parse(document.getElementById(`payload-${number}`).textContent);
}

// Levels are square roots, so that small attributions keep their precision.
function unpack(map) {
  const bytes = atob(map.levels);
  const values = new Float32Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) {
    const level = (bytes.charCodeAt(i) << 24) >> 24;
    values[i] = Math.sign(level) * (level / LEVELS) ** 2 * map.largest;
  }
  return values;
}

// Sums over windows of size × size pixels, which add up to what the pixels do; each pixel shows its window's.
function inWindows(values, width, height, size, each) {
  if (size === 1 && each === 1) return values;
  const across = Math.ceil(width / size);
  const sums = new Float64Array(across * Math.ceil(height / size));
  const window = (i) => Math.floor(Math.floor(i / width) / size) * across + Math.floor((i % width) / size);
  for (let i = 0; i < values.length; i++) sums[window(i)] += each * values[i];
  return Float32Array.from(values, (_, i) => sums[window(i)]);
}

// Where colours end: at a percentile of what is not counted twice, so that one outlier does not fade all others.
function percentile(values, share) {
  const sizes = Float32Array.from(values, Math.abs).sort();
  const at = (share / 100) * (sizes.length - 1);
  const low = sizes[Math.floor(at)];
  const found = low + (at - Math.floor(at)) * (sizes[Math.ceil(at)] - low);
  return found || sizes[sizes.length - 1] || 1;
}

// blend 0: the image alone; 0.5: the image, tinted where attributions are large; 1: the map alone.
function paint(canvas, values, limit, blend) {
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  const opaque = Math.max(0, 2 * blend - 1);
  for (let i = 0; i < values.length; i++) {
    const signed = Math.max(-1, Math.min(1, values[i] / limit));
    const strength = Math.abs(signed);
    const tint = Math.sign(signed) * 0.5;
    const at = 3 * Math.round(((tint + (signed - tint) * opaque + 1) / 2) * 2 * STEPS);
    pixels.data[4 * i] = lookup[at];
    pixels.data[4 * i + 1] = lookup[at + 1];
    pixels.data[4 * i + 2] = lookup[at + 2];
    pixels.data[4 * i + 3] = 255 * (blend < 0.5 ? strength * 2 * blend : strength + (1 - strength) * opaque);
  }
  context.putImageData(pixels, 0, 0);
}

function paintBar(canvas) {
  canvas.width = 2 * STEPS + 1;
  canvas.height = 1;
  paint(canvas, Float32Array.from({ length: canvas.width }, (_, i) => i / STEPS - 1), 1, 1);
}

function number(value, signed = false) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  const tiny = value !== 0 && Math.abs(value) < 1e-3;
  const text = (tiny ? value.toExponential(1) : Number(value.toPrecision(3)).toString()).replace(/-/g, "−");
  return signed && value > 0 ? `+${text}` : text;
}
