"""Every message of an error or a warning is a sentence: it ends with a full stop, or with the question that it asks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "axiograd"
#: Python's own protocols, whose messages are names and keys.
PROTOCOLS = {"AttributeError", "IndexError", "KeyError", "MissingExtraError"}


def endings(source: str) -> Iterator[tuple[int, str]]:
    """The line and the written end of each message; a message that ends with a value ends as the value does."""
    for node in ast.walk(ast.parse(source)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        message = call.args[0]
        last = message.values[-1] if isinstance(message, ast.JoinedStr) else message
        is_error = isinstance(node, ast.Raise) and name.endswith("Error") and name not in PROTOCOLS
        if (is_error or ast.unparse(call.func) == "warnings.warn") and isinstance(last, ast.Constant):
            yield message.lineno, str(last.value)


def test_every_message_ends_with_a_full_stop():
    wrong = [
        f"{path.relative_to(SRC)}:{line} …{end[-40:]}"
        for path in sorted(SRC.rglob("*.py"))
        for line, end in endings(path.read_text(encoding="utf-8"))
        if not end.endswith((".", "?"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise InputError("no stop")', ["no stop"]),
        ('raise errors.InputError(f"{x} has " "no stop")', [" has no stop"]),
        ('raise InputError(f"ends with {x}")', []),
        ('raise KeyError("name")', []),
        ('warnings.warn("no stop", UserWarning)', ["no stop"]),
        ("raise error", []),
    ],
)
def test_what_would_be_found(source, found):
    assert [end for _, end in endings(source)] == found
