// The pictures that tell the story, at the top: the image and each of its views.

function showFeatured(box) {
  if (!box) return;
  for (const id of data.featured) {
    const sample = data.samples[id];
    const payload = readPayload(id);
    const shown = payload.bars ? [] : sample.views.map((_, view) => figure(picture(sample, payload, view), data.views[sample.views[view]]));
    if (payload.image) shown.unshift(figure(element("img", { src: payload.image, alt: "", className: "plain" }), sample.label ?? "image"));
    box.append(element("a", { href: `#sample-${id}`, "aria-label": `${sample.name}: open` }, element("div", { className: "row" }, ...shown)));
  }
}

function picture(sample, payload, view) {
  const drawn = drawing(sample, payload);
  drawn.draw(view, 1, false, data.pool);
  return drawn.root;
}

function figure(content, caption) {
  return element("figure", {}, content, element("figcaption", { textContent: caption }));
}
