"""All results on one page, from the files that hold them: nothing is typed in by hand.

python -m axiograd.experiments.results_page          writes docs/results.md, what-reproduces.md and gallery.md
python -m axiograd.experiments.results_page --check  ends with 1 where that would change it
python -m axiograd.experiments.results_page --old    lists results that today's code has not made
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from axiograd._io import write_atomically
from axiograd.experiments import claims, gallery
from axiograd.experiments.item import Item
from axiograd.experiments.records import provenance, read
from axiograd.experiments.reproduce import ITEMS, find, older_than_their_code

#: What is said of a scale, before the name of its data.
SCALES = {"full": "Full scale, on", "real": "On", "quick": "Quick form, on"}
INTRODUCTION = """# Results

Every table and figure of the paper, its numbers beside ours, and what else was measured. Made from the files in
`results/` and `benchmarks/results/` by `python -m axiograd.experiments.results_page`; a test fails when this page and
the files differ. What an item is run with stands below it, with the commit whose code made the numbers, or, of numbers
older than that note, the first commit that they are "kept since". `axiograd reproduce NAME` repeats it with today's
code; `python -m axiograd.experiments.results_page --old` lists what other code has made."""


def page(results: Path, benchmarks: Path, docs: Path) -> str:
    """The Markdown of the page, with pictures by their paths relative to `docs`."""
    parts = [INTRODUCTION]
    for name in ITEMS:
        scales = [scale for scale in SCALES if (results / name / f"{scale}.json").is_file()]
        if scales:
            item = find(name)
            parts.append(f"## {item.title}")
            parts += [part for scale in scales for part in section(item, results / name / f"{scale}.json", docs)]
    parts += others(benchmarks)
    return "\n\n".join(parts) + "\n"


def section(item: Item, records_path: Path, docs: Path) -> Iterator[str]:
    """One item at one scale."""
    records = read(records_path)
    scale = records_path.stem
    yield f"### {SCALES[scale]} {records.data}"
    if records.missing:
        yield f"**Not complete: {records.missing}.**"
    yield item.table(records).markdown()
    picture = records_path.with_suffix(".png")
    if picture.is_file():
        yield f"![{item.title}]({relative(picture, docs)})"
    yield provenance(records)


def others(benchmarks: Path) -> Iterator[str]:
    """What is not an item: the benchmarks."""
    for path in sorted(benchmarks.glob("*.md")):
        # The axioms, with every counterexample, are Table 1 above.
        if path.name != "axioms.md":
            yield shifted(path.read_text())


def relative(path: Path, start: Path) -> str:
    """A path as a link: from `start`, with forward slashes.

    >>> relative(Path("results/fig3/real.png"), Path("docs"))
    '../results/fig3/real.png'
    """
    return Path(os.path.relpath(path, start)).as_posix()


def shifted(text: str) -> str:
    """Markdown one level further down.

    >>> shifted("# A\\n\\n## B")
    '## A\\n\\n### B'
    """
    return re.sub(r"^(#+ )", r"#\1", text.strip(), flags=re.MULTILINE)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--benchmarks", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--check", action="store_true", help="write nothing; is the page up to date?")
    parser.add_argument("--old", action="store_true", help="write nothing; which results has other code made?")
    options = parser.parse_args()
    if options.old:
        sys.stdout.writelines(f"{line}\n" for line in older_than_their_code(options.results))
        return
    pages = {
        options.out: page(options.results, options.benchmarks, options.out.parent),
        options.out.with_name("what-reproduces.md"): claims.page(options.results),
        options.out.with_name("gallery.md"): gallery.page(options.results, options.out.parent),
    }
    for out, text in pages.items():
        if not options.check:
            write_atomically(out, text.encode())
        elif not out.is_file() or out.read_text() != text:
            sys.exit(f"{out} is not what the files give: python -m axiograd.experiments.results_page")


if __name__ == "__main__":
    main()
