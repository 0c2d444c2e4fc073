// Headers sort their tables; a second press turns the order around.

function sortable(header) {
  const words = header.textContent;
  header.replaceChildren(element("button", { type: "button", textContent: words || "name", onclick: () => sortBy(header) }));
}

function sortBy(header) {
  const rows = [...header.closest("table").tBodies[0].rows];
  const at = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const each of header.parentElement.cells) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
  const order = (a, b) => (isNaN(value(a)) || isNaN(value(b))
    ? value(a).localeCompare(value(b), undefined, { numeric: true }) : value(a) - value(b));
  rows.sort((a, b) => (down ? -1 : 1) * order(a, b));
  header.closest("table").tBodies[0].append(...rows);
}

async function copy(button) {
  const text = button.parentElement.querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Files opened from disk may not have the clipboard: select the text instead.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
