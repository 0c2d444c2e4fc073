// Attributions as pictures, the same in every page: sums over windows, where colours end, and the colours themselves.

const Heat = (() => {
  const ANCHORS = "$ANCHORS".split(" "); // from the most negative to the most positive value
  const STEPS = 255; // colours on each side of zero
  const TINT = $TINT; // of an overlay: the middle of each half, for the dark ends would vanish on a dark image

  const colours = (() => {
    const anchors = ANCHORS.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    return Array.from({ length: 2 * STEPS + 1 }, (_, i) => {
      const place = (i / (2 * STEPS)) * (anchors.length - 1);
      const left = Math.min(Math.floor(place), anchors.length - 2);
      return anchors[left].map((from, c) => from + (place - left) * (anchors[left + 1][c] - from));
    });
  })();

  // Sums of [1, channels, height, width] over windows of side × side pixels: nothing is lost, so the total stays.
  function windows(values, [, channels, height, width], side) {
    const rows = Math.ceil(height / side), columns = Math.ceil(width / side);
    const sums = new Float64Array(rows * columns);
    let at = 0;
    for (let c = 0; c < channels; c++) {
      for (let y = 0; y < height; y++) {
        const row = Math.floor(y / side) * columns;
        for (let x = 0; x < width; x++) sums[row + Math.floor(x / side)] += values[at++];
      }
    }
    return { sums, rows, columns, side, width };
  }

  // Where colours end: at a percentile, so that one outlier does not fade all others.
  function limit(sums) {
    const sizes = Float64Array.from(sums, Math.abs).sort();
    const at = ($CLIP / 100) * (sizes.length - 1), low = Math.floor(at);
    const found = sizes[low] + (at - low) * (sizes[Math.ceil(at)] - sizes[low]);
    return found || sizes[sizes.length - 1] || 1;
  }

  // Of a value in [-1, 1]: on its own the map's colour; over a grey image a tint, as strong as the value is large.
  function shade(signed, overlay) {
    const shown = overlay ? Math.sign(signed) * TINT : signed;
    return [...colours[Math.round((shown + 1) * STEPS)], overlay ? 255 * Math.abs(signed) : 255];
  }

  function picture(sums, rows, columns, end, overlay) {
    const small = new OffscreenCanvas(columns, rows), pixels = new ImageData(columns, rows);
    sums.forEach((sum, i) => pixels.data.set(shade(Math.max(-1, Math.min(1, sum / end)), overlay), 4 * i));
    small.getContext("2d").putImageData(pixels, 0, 0);
    return small;
  }

  // Fills a canvas of any size; as an overlay it belongs on the image in grey.
  function paint(canvas, { sums, rows, columns, side, width }, { overlay = false, end = limit(sums) } = {}) {
    const context = canvas.getContext("2d"), scale = (side * canvas.width) / width;
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture(sums, rows, columns, end, overlay), 0, 0, columns * scale, rows * scale);
  }

  // The colour bar has the colours that `paint` reaches, no others; for an overlay, those on middle grey.
  function paintBar(canvas, { overlay = false } = {}) {
    const context = canvas.getContext("2d"), steps = 2 * STEPS + 1;
    context.fillStyle = "#808080";
    context.fillRect(0, 0, canvas.width, canvas.height);
    const values = Float64Array.from({ length: steps }, (_, i) => i / STEPS - 1);
    context.drawImage(picture(values, 1, steps, 1, overlay), 0, 0, canvas.width, canvas.height);
  }

  return { windows, limit, paint, paintBar };
})();
