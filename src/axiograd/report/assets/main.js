document.querySelectorAll("th[data-sortable]").forEach(sortable);
document.querySelectorAll("button[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));

const samples = document.getElementById("samples");
const gallery = samples && data.samples.length ? new Gallery(samples) : null;
showFeatured(document.getElementById("featured"));

document.addEventListener("keydown", (event) => {
  if (!gallery || event.altKey || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
  if (event.key === "/" && !gallery.detail.dialog.open) {
    event.preventDefault();
    gallery.search.focus();
  }
  if (event.key === "v") gallery.setView((gallery.settings.view + 1) % data.views.length);
});

document.documentElement.dataset.ready = "yes";
