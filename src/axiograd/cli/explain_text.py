"""`axiograd explain hf:FOLDER review.txt|texts.csv`: coloured words in the terminal, as images, and on a page."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axiograd._names import choose_from
from axiograd.errors import ConfigurationError, DataMissingError

if TYPE_CHECKING:
    from axiograd.cli.output import Output

#: What lies in a folder with a tokenizer.
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model")
_HF = "hf:"


def texts_wanted(spec: str, inputs: list[str]) -> bool:
    """Whether texts are given: .txt files, or a table for a model with a tokenizer.

    >>> texts_wanted("hf:my-model", ["review.txt"]), texts_wanted("xmlp", ["patients.csv"])
    (True, False)
    """
    if not inputs or not all(name.lower().endswith((".txt", ".csv")) for name in inputs):
        return False
    folder = Path(spec.removeprefix(_HF))
    tokenizes = any((folder / name).is_file() for name in _TOKENIZER)
    return tokenizes or all(name.lower().endswith(".txt") for name in inputs)


def explain_text(
    output: Output,
    spec: str,
    inputs: list[str],
    *,
    method: str | None,
    target: str,
    versus: str | None,
    column: str | None,
    steps: int,
    batch_size: int,
    limit: int | None,
    out: Path,
    figures: bool,
    report: bool,
    download: bool,
) -> None:
    """Explain every text, show the first, and write a page, an SVG for each, and their numbers."""
    from axiograd import text as texts
    from axiograd._io import check_writable
    from axiograd.report import write_text_page

    read = [pair for name in inputs for pair in _read(Path(name), column)][:limit]
    found = [(name, text) for name, text in read if text.strip()]
    empty = [name for name, text in read if not text.strip()]
    if not found:
        raise ConfigurationError(f"{', '.join(inputs)}: there is no text in it.")
    if figures or report:
        check_writable(out)
    if not spec.startswith(_HF) and not Path(spec).is_dir():
        raise ConfigurationError(
            f"{spec!r} has no tokenizer, which texts need: give hf:FOLDER with a model and its tokenizer in it."
        )
    model, tokenizer = texts.load(spec.removeprefix(_HF), local=not download)
    explained = texts.explain(
        model,
        tokenizer,
        [text for _, text in found],
        None if target == "predicted" else int(target) if target.isdecimal() else target,
        versus=None if versus is None else int(versus) if versus.isdecimal() else versus,
        method=method,
        steps=steps,
        batch_size=batch_size,
    )
    answer: dict[str, Any] = {"model": spec, "texts": [], "skipped": empty}
    files: dict[str, Any] = {}
    for (name, _), one in zip(found, explained, strict=True):
        answer["texts"].append({"name": name, **one.to_dict()})
    for (name, _), one in list(zip(found, explained, strict=True))[:_SHOWN]:
        output.say(name, style="dim")
        output.console.print(one, soft_wrap=False)
        output.say("")
    if len(found) > _SHOWN:
        output.say(f"… and {len(found) - _SHOWN} more{', all of them in the report' if report else ''}.", style="dim")
    if empty:
        shown = ", ".join(empty[:8]) + (f" and {len(empty) - 8} more" if len(empty) > 8 else "")  # noqa: PLR2004
        output.note(f"Left out, as there is no text: {shown}")
    if figures:
        files["figures"] = _draw(explained, out)
        output.say(f"Images: {len(explained)} SVG {'file' if len(explained) == 1 else 'files'} in {out}")
    if report:
        files["report"] = str(write_text_page(explained, out / "report.html", f"{spec}: why it says so"))
        output.say(f"Report: {files['report']}", style="bold")
    output.answer({**answer, "files": files})


#: Texts that a terminal shows.
_SHOWN = 5


def _draw(explained: Sequence[Any], out: Path) -> list[str]:
    """One picture per text; those of an earlier run with more texts are removed."""
    from axiograd._io import write_atomically

    drawn = [write_atomically(out / f"text-{i:04d}.svg", one.to_svg().encode()) for i, one in enumerate(explained)]
    for path in set(out.glob("text-[0-9][0-9][0-9][0-9].svg")) - set(drawn):
        path.unlink()
    return [str(path) for path in drawn]


def _read(path: Path, column: str | None) -> list[tuple[str, str]]:
    """Texts with their names: a whole file, or a column of a table."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as UTF-8 text: {error}.") from error
    if path.suffix.lower() == ".txt":
        return [(path.name, content.strip())]
    rows = list(csv.DictReader(content.splitlines(keepends=True)))
    names = [name for name in (rows[0] if rows else {}) if name is not None]
    if not rows:
        raise ConfigurationError(f"{path} has no rows below its header.")
    if column is None:
        column = "text" if "text" in names else max(names, key=lambda name: sum(len(row[name] or "") for row in rows))
    if column not in names:
        raise ConfigurationError(f"{path} has no column {column!r}: {choose_from(column, names)}.")
    return [(f"{path.name}:{i + 2}", row[column] or "") for i, row in enumerate(rows)]
