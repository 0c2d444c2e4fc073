"""An item's records as files: table, figure, and the page that shows them with what is needed to repeat them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from axiograd.experiments.item import Item, Setting, Table
from axiograd.experiments.records import Records, provenance
from axiograd.report import canvas
from axiograd.runs.files import write_atomically


@dataclass(frozen=True)
class Rendered:
    """What was written."""

    item: Item
    setting: Setting
    table: Table
    files: tuple[Path, ...]
    missing: int
    total: int


def render(item: Item, setting: Setting, records: Records, whole: Path, *, missing: int, total: int) -> Rendered:
    """Write the CSV, the Markdown and the figures beside the records."""
    table = item.table(records)
    files = [whole, write_atomically(whole.with_suffix(".csv"), table.csv().encode())]
    if item.figure is not None:
        pictures = [whole.with_suffix(".png"), whole.with_suffix(".pdf")]
        canvas.save(item.figure(records), pictures)
        files += pictures
        if item.private_figure is not None and (figure := item.private_figure(records, setting)) is not None:
            private = [whole.with_name(f"{whole.stem}.photos{kind}") for kind in (".png", ".pdf")]
            canvas.save(figure, private)
            files += private
    page = write_atomically(whole.with_suffix(".md"), page_of(item, records, table).encode())
    return Rendered(item, setting, table, (*files, page), missing, total)


def page_of(item: Item, records: Records, table: Table) -> str:
    """The Markdown beside the records."""
    incomplete = f"**Not complete: {records.missing}.**" if records.missing else ""
    picture = f"![{item.title}]({records.path.stem}.png)" if item.figure is not None else ""
    parts = [f"# {item.title}", incomplete, table.markdown(), picture, provenance(records)]
    return "\n\n".join(filter(None, parts)) + "\n"
