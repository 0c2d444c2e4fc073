"""Runs the documentation's Python blocks, each page from top to bottom in one namespace.

A `text` block shows what the block before it printed, and is compared with that; `...` stands for anything.
"""

import io
from contextlib import redirect_stdout
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker

from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
PRINTED = "what_was_printed"


class Recording(PythonEvaluator):
    """Runs a block and remembers what it prints."""

    def __call__(self, example: Example) -> None:
        with redirect_stdout(io.StringIO()) as printed:
            super().__call__(example)
        example.namespace[PRINTED] = printed.getvalue()


def compare(example: Example) -> str | None:
    """What is wrong with a block of output, if anything."""
    shown, printed = str(example.parsed), example.namespace[PRINTED]
    if OutputChecker().check_output(shown, printed, FLAGS):
        return None
    return f"The page shows\n{shown}\nbut the block before printed\n{printed}"


blocks = PythonCodeBlockParser(doctest_optionflags=FLAGS)
blocks.codeblock_parser = CodeBlockParser("python", Recording())
outputs = CodeBlockParser("text", compare)
pytest_collect_file = Sybil(parsers=[blocks, outputs, SkipParser()], patterns=["*.md"]).pytest()
