"""Runs an item of the paper piece by piece, alone or as one of several processes, and writes what follows from it.

OUT/NAME/SCALE.json   records, saved after every piece; a run that was stopped resumes there
OUT/NAME/SCALE.csv, .md, .png, .pdf
OUT/NAME/SCALE.part-2-of-8.json   the records of one of several processes, until all pieces are there
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from axiograd._io import alone, check_writable, progress_bar, write_atomically
from axiograd.errors import AxiogradError, ConfigurationError
from axiograd.experiments import ITEMS as ITEMS  # noqa: PLC0414  # what this package has
from axiograd.experiments.code import digest
from axiograd.experiments.item import Item, Plan, Scale, Setting, Table, Work
from axiograd.experiments.records import RecordedPiece, Records, current_versions, provenance, read
from axiograd.report import canvas


def find(name: str) -> Item:
    """An item by its name.

    >>> find("table3").title
    'Table 3: masking metrics of attribution methods'
    """
    if name not in ITEMS:
        raise ConfigurationError(f"no item {name!r}; there are: {', '.join(ITEMS)}, and all.")
    item: Item = getattr(importlib.import_module(module_of(name)), ITEMS[name].partition(":")[2])
    return item


def module_of(name: str) -> str:
    """The module in which an item is defined."""
    return f"axiograd.experiments.{ITEMS[name].partition(':')[0]}" if name in ITEMS else ""


def older_than_their_code(results: Path) -> list[str]:
    """The results in a folder with pieces that today's code has not made, or that do not say which has."""
    old = []
    for name in ITEMS:
        for path in (results / name / f"{scale}.json" for scale in get_args(Scale)):
            pieces = read(path).pieces if path.is_file() else []
            made = [piece for piece in pieces if piece.versions.get("code") == digest(module_of(name))]
            if len(made) < len(pieces):
                commits = sorted({_commit_of(piece) for piece in pieces})
                old.append(f"{name} ({path.stem}): {len(pieces) - len(made)} of {len(pieces)}, {', '.join(commits)}")
    return old


def _commit_of(piece: RecordedPiece) -> str:
    """The commit that made a piece, or for older ones the first that holds it."""
    versions = piece.versions
    return versions.get("commit") or f"kept since {versions.get('kept since', 'a commit not recorded')}"


@dataclass(frozen=True)
class ProcessShare:
    """Which of several processes this is: it takes every n-th piece.

    >>> ProcessShare.ensure("2/8")
    ProcessShare(number=2, of=8)
    """

    number: int = 1
    of: int = 1

    @classmethod
    def ensure(cls, text: str | None) -> ProcessShare:
        """From "2/8", else from the environment that torchrun makes, else the only process."""
        if text is None:
            rank, size = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
            return cls(int(rank) + 1, int(size)) if rank and size else cls()
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ConfigurationError(f"--part {text}: expected the number of this process and of all, such as 2/8.")
        return cls(int(found[1]), int(found[2]))

    def path(self, whole: Path) -> Path:
        """The file of this process's own records."""
        if self.of == 1:
            return whole
        return whole.with_name(f"{whole.stem}.part-{self.number}-of-{self.of}.json")


def fitting(item: Item, setting: Setting) -> Setting:
    """The setting at a scale that the item has: what needs no ImageNet is the same at full scale as with real data."""
    if setting.scale in item.scales:
        return setting
    if setting.scale == "full" and "real" in item.scales:
        return replace(setting, scale="real")
    raise ConfigurationError(f"{item.name} cannot be run at the {setting.scale} scale: {', '.join(item.scales)}.")


def run(
    item: Item,
    setting: Setting,
    out: Path,
    *,
    command: str,
    share: ProcessShare | None = None,
    only_render: bool = False,
) -> Rendered:
    """Do what is left of an item, in this process's share, and render what is there."""
    share = share or ProcessShare()
    setting = fitting(item, setting)
    whole = out / item.name / f"{setting.scale}.json"
    plan = item.plan(setting)
    if not only_render:
        check_writable(whole.parent)
        with alone(whole.parent, f".{share.path(whole).name}.lock"):
            work_through(item, plan, whole, command=command, share=share)
    records = gathered(plan, whole, command)
    if not records.pieces:
        raise ConfigurationError(f"{whole} is not there yet: nothing to render; run without --only-render first.")
    todo, missing = state(plan, records)
    # As one process would have written them, whichever made them.
    places = {named(work.key): place for place, work in enumerate(todo)}
    found = list(records.pieces)
    records.pieces.sort(key=lambda piece: places.get(named(piece.key), len(todo)))
    incomplete = f"{len(missing)} of {len(todo)} pieces are missing" if missing else ""
    known, records.missing = records.missing, incomplete
    if not missing:
        if parts(whole) or records.pieces != found or known:
            records.save()
        for part in parts(whole):
            part.unlink(missing_ok=True)
    elif share.of > 1:
        # The process that finds everything there writes the files; this one must not write older ones over them.
        return Rendered(item, setting, item.table(records), (share.path(whole),), len(missing), len(todo))
    elif known != incomplete and not parts(whole):
        records.save()
    return render(item, setting, records, whole, missing=len(missing), total=len(todo))


def work_through(item: Item, plan: Plan, whole: Path, *, command: str, share: ProcessShare) -> None:
    """Stage by stage, the pieces of this process that no file holds."""
    versions = current_versions(code=digest(module_of(item.name)))
    own = Records(share.path(whole), command=command, data=plan.data, settings=plan.settings, versions=versions)
    for number, stage in enumerate(plan.stages, start=1):
        known = gathered(plan, whole, command)
        todo = list(stage(known))
        mine = [work for place, work in enumerate(todo) if place % share.of == share.number - 1]
        # The remaining time is by the costs of the pieces.
        total = sum(work.cost for work in mine)
        with progress_bar(item.name, total=total, shown=True, counted=False) as update:
            for work in mine:
                if known.get(**work.key) is None:
                    own.add(work.compute(), **work.key)
                update(advance=work.cost, note=in_words(work.key))
        if number < len(plan.stages):
            missing = missing_of(todo, gathered(plan, whole, command))
            if missing:
                raise ConfigurationError(
                    f"{item.name}: stage {number} of {len(plan.stages)} has {len(missing)} pieces that other processes "
                    "have not finished, and the next stage depends on them: start the same command again when they are "
                    "done, or use one process."
                )


def gathered(plan: Plan, whole: Path, command: str) -> Records:
    """All the pieces of the item's files, in memory."""
    records = Records(whole, command=command, data=plan.data, settings=plan.settings)
    for part in parts(whole):
        try:
            other = read(part)
        except AxiogradError:
            # Another process has just moved its pieces into the whole.
            if part.exists():
                raise
            records.merge(read(whole))
        else:
            records.merge(other)
    return records


def parts(whole: Path) -> list[Path]:
    """The files of several processes."""
    return sorted(whole.parent.glob(f"{whole.stem}.part-*-of-*.json"))


def state(plan: Plan, records: Records) -> tuple[list[Work], list[Work]]:
    """All the pieces, and those that are missing; stages that cannot be listed yet are missing as one."""
    todo: list[Work] = []
    for stage in plan.stages:
        listed = list(stage(records))
        known = {named(work.key) for work in todo}
        todo += [work for work in listed if named(work.key) not in known]
        if missing := missing_of(listed, records):
            return todo, missing
    return todo, []


def missing_of(todo: Sequence[Work], records: Records) -> list[Work]:
    """The pieces that are not in the records."""
    return [work for work in todo if records.get(**work.key) is None]


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


def named(key: Mapping[str, object]) -> str:
    """A key as a word that is the same before and after a file."""
    return json.dumps(key, sort_keys=True)


def in_words(key: Mapping[str, object]) -> str:
    """A key in a few words.

    >>> in_words({"form": "lifted", "images": [0, 20]})
    'lifted, 0–20'
    """
    return ", ".join("–".join(map(str, v)) if isinstance(v, list) else str(v) for v in key.values())
