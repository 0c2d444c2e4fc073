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

#: Texts that a terminal shows.
_SHOWN = 5
_HF = "hf:"


def texts_wanted(spec: str, inputs: Sequence[str]) -> bool:
    """Whether texts are given: .txt files, or a table for a model of Hugging Face, which does not read numbers.

    >>> texts_wanted("hf:my-model", ["reviews.csv"]), texts_wanted("xmlp", ["patients.csv"])
    (True, False)
    """
    if not inputs or not all(name.lower().endswith((".txt", ".csv")) for name in inputs):
        return False
    return spec.startswith(_HF) or all(name.lower().endswith(".txt") for name in inputs)


def explain_texts(
    output: Output,
    spec: str,
    inputs: Sequence[str],
    *,
    method: str | None,
    target: str | None,
    versus: str | None,
    column: str | None,
    steps: int | None,
    batch_size: int,
    limit: int | None,
    out: Path,
    download: bool,
    device: str,
) -> None:
    """Explain every text, show the first, and write a page, an SVG for each, and their numbers."""
    from axiograd import text
    from axiograd._io import check_writable, write_atomically
    from axiograd.report import write_text_page

    read = [pair for name in inputs for pair in _read(Path(name), column)][:limit]
    found = [(name, content) for name, content in read if content.strip()]
    if not found:
        raise ConfigurationError(f"{', '.join(inputs)}: there is no text in it.")
    if not spec.startswith(_HF):
        raise ConfigurationError(
            f"{spec!r} has no tokenizer, which texts need: give hf:FOLDER with a model and its tokenizer in it."
        )
    check_writable(out)
    model, tokenizer = text.load(spec.removeprefix(_HF), local=not download)
    own: dict[str, Any] = {"method": method, "steps": steps}
    own = {name: value for name, value in own.items() if value is not None}
    explained = text.explain(
        model.to(device),
        tokenizer,
        [content for _, content in found],
        None if target == "predicted" else _answer(target),
        versus=_answer(versus),
        batch_size=batch_size,
        **own,
    )
    for (name, _), one in list(zip(found, explained, strict=True))[:_SHOWN]:
        output.say(name, style="dim")
        output.console.print(one, soft_wrap=False)
        output.say("")
    if len(found) > _SHOWN:
        output.say(f"… and {len(found) - _SHOWN} more, all of them in the report.", style="dim")
    empty = [name for name, content in read if not content.strip()]
    if empty:
        output.note(f"Left out, as there is no text: {', '.join(empty[:8])}{' …' * (len(empty) > 8)}")  # noqa: PLR2004
    for path in out.glob("text-[0-9][0-9][0-9][0-9].svg"):  # an earlier run's
        path.unlink()
    figures = [
        str(write_atomically(out / f"text-{i:04d}.svg", one.to_svg().encode())) for i, one in enumerate(explained)
    ]
    report = str(write_text_page(explained, out / "report.html", f"{spec}: why it says so"))
    output.say(f"Images: {len(figures)} SVG {'file' if len(figures) == 1 else 'files'} in {out}")
    output.say(f"Report: {report}", style="bold")
    texts = [{"name": name, **one.to_dict()} for (name, _), one in zip(found, explained, strict=True)]
    output.answer({"model": spec, "texts": texts, "left_out": empty, "files": {"figures": figures, "report": report}})


def _answer(given: str | None) -> Any:
    """A label's number, its name, or nothing."""
    return int(given) if given is not None and given.isdecimal() else given


def _read(path: Path, column: str | None) -> list[tuple[str, str]]:
    """Texts with their names: a whole file, or a column of a table."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read as UTF-8 text: {error}.") from error
    if path.suffix.lower() == ".txt":
        if column is not None:
            raise ConfigurationError(f"--column {column}: {path} is one text and has no columns.")
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
