// Runs the model away from the page, so that the page stays quick. One thread: no cross-origin isolation is needed.

import { InferenceSession, Tensor, env } from "./ort/ort.js";

env.wasm.numThreads = 1;
env.logLevel = "error";

async function bytes(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

// Fetched here, so that it does not matter which type the server gives to .wasm files.
const ready = (async () => {
  env.wasm.wasmBinary = await bytes("./ort/ort.wasm");
  return InferenceSession.create(await bytes("./model.onnx"), { executionProviders: ["wasm"] });
})();

ready.then(
  () => postMessage({ kind: "ready" }),
  (error) => postMessage({ kind: "failed", message: String(error?.message ?? error) }),
);

onmessage = async ({ data: { number, pixels, width, height, target, contrasts } }) => {
  try {
    const session = await ready;
    const image = new Uint8Array(width * height * 3);
    for (let from = 0, to = 0; from < pixels.length; from += 4) {
      image[to++] = pixels[from];
      image[to++] = pixels[from + 1];
      image[to++] = pixels[from + 2];
    }
    const answers = [];
    for (const contrast of contrasts) {
      const start = performance.now();
      const found = await session.run({
        image: new Tensor("uint8", image, [1, height, width, 3]),
        target: new Tensor("int64", BigInt64Array.of(BigInt(target)), [1]),
        contrast: new Tensor("float32", Float32Array.of(contrast), [1]),
      });
      answers.push({
        contrast,
        milliseconds: performance.now() - start,
        output: found.output.data,
        attribution: found.attribution.data,
        dims: found.attribution.dims,
        gap: found.gap.data[0],
      });
    }
    postMessage({ kind: "answer", number, target, answers });
  } catch (error) {
    postMessage({ kind: "failed", number, message: String(error?.message ?? error) });
  }
};
