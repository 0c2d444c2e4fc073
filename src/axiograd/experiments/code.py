"""Which code made a result: the commit, and a digest of the modules that decide its numbers."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from functools import cache
from pathlib import Path

SRC = Path(__file__).parents[2]
#: Packages that show results or start the work, and decide no number.
SHOW = ("axiograd.cli", "axiograd.report", "axiograd._notebook")


@cache
def commit() -> str:
    """The commit of the checkout that this code is in, with a + where its sources have changed since, or ""."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if head and _git("status", "--porcelain", "--", ".") else "")
    except OSError:
        return ""


def _git(*words: str) -> str:
    command = ["git", "-C", str(SRC / "axiograd"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  # our own words
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def digest(module: str) -> str:
    """A short hash of a module and of every module of ours that it imports, at once or later: code, not comments.

    >>> digest("axiograd.experiments.table1") == digest("axiograd.experiments.table3")
    False
    """
    code = hashlib.sha256()
    for name, syntax in sorted(_reached(module).items()):
        code.update(f"{name}\n{syntax}\n".encode())
    return code.hexdigest()[:12]


def _reached(module: str) -> dict[str, str]:
    """The modules that a module needs, by their names, and its own: the syntax of each."""
    found: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        path = _file(name)
        if path is None or name in found or name.startswith(SHOW):
            continue
        found[name], imported = _parsed(path.read_text(encoding="utf-8"))
        todo += imported
    return found


def _file(module: str) -> Path | None:
    """Where a module of ours is."""
    if module.partition(".")[0] != "axiograd":
        return None
    path = SRC.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _parsed(text: str) -> tuple[str, tuple[str, ...]]:
    """The syntax of a module, without comments and docstrings, and what it imports; items share most of theirs."""
    tree = ast.parse(text)
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(tree), tuple(imported)
