// Attributions as a picture: sums over channels and windows, and the colours that they get.

const Heat = (() => {
  const STEPS = 255; // colours on each side of zero
  let lookup = new Uint8ClampedArray((2 * STEPS + 1) * 3);

  function setColours(hexes) {
    const anchors = hexes.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    for (let i = 0; i <= 2 * STEPS; i++) {
      const place = (i / (2 * STEPS)) * (anchors.length - 1);
      const left = Math.min(Math.floor(place), anchors.length - 2);
      for (let c = 0; c < 3; c++) {
        lookup[3 * i + c] = anchors[left][c] + (place - left) * (anchors[left + 1][c] - anchors[left][c]);
      }
    }
  }

  // [1, channels, height, width] → [height / side, width / side]; nothing is lost, so the sum stays the score.
  function windows(values, dims, side) {
    const [, channels, height, width] = dims;
    const rows = Math.ceil(height / side), columns = Math.ceil(width / side);
    const sums = new Float64Array(rows * columns);
    let at = 0;
    for (let c = 0; c < channels; c++) {
      for (let y = 0; y < height; y++) {
        const row = Math.floor(y / side) * columns;
        for (let x = 0; x < width; x++) sums[row + Math.floor(x / side)] += values[at++];
      }
    }
    return { sums, rows, columns };
  }

  // Few pixels are much larger than all others: the largest half percent share the strongest colour.
  function limit(sums) {
    const sizes = Float64Array.from(sums, Math.abs).sort();
    return sizes[Math.min(sizes.length - 1, Math.floor(0.995 * sizes.length))] || 1;
  }

  // Opaque where attributions are large, and everywhere once the photo is hidden.
  function paint(canvas, { sums, rows, columns }, blend) {
    const small = new OffscreenCanvas(columns, rows);
    const picture = new ImageData(columns, rows);
    const most = limit(sums), floor = Math.max(0, 2 * blend - 1), gain = Math.min(1, 2 * blend);
    for (let i = 0; i < sums.length; i++) {
      const signed = Math.max(-1, Math.min(1, sums[i] / most));
      const strength = Math.sqrt(Math.abs(signed)) * gain;
      const at = 3 * Math.round((signed + 1) * STEPS);
      for (let c = 0; c < 3; c++) picture.data[4 * i + c] = lookup[at + c];
      picture.data[4 * i + 3] = 255 * (strength + (1 - strength) * floor);
    }
    small.getContext("2d").putImageData(picture, 0, 0);
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    const side = canvas.width / Math.max(1, columns);
    context.drawImage(small, 0, 0, columns * side, rows * side);
  }

  function paintBar(canvas) {
    const picture = new ImageData(canvas.width, 1);
    for (let i = 0; i < canvas.width; i++) {
      const at = 3 * Math.round((i / (canvas.width - 1)) * 2 * STEPS);
      for (let c = 0; c < 3; c++) picture.data[4 * i + c] = lookup[at + c];
      picture.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(picture, 0, 0);
  }

  return { setColours, windows, paint, paintBar };
})();
