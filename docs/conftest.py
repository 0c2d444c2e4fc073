"""Runs the documentation's Python blocks, each page from top to bottom in one namespace."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

blocks = PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
pytest_collect_file = Sybil(parsers=[blocks, SkipParser()], patterns=["*.md"]).pytest()
