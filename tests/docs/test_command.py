"""The page about the command names commands and options that exist."""

import re
import shlex
from pathlib import Path

import typer

from axiograd.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "command.md").read_text()
COMMANDS = typer.main.get_command(app).commands
EXAMPLES = re.findall(r"^(?:\w+=\S+ )?axiograd (.+)$", PAGE, re.MULTILINE)


def test_every_command_has_a_section_and_an_example():
    sections = {name for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) for name in title.split(", ")}
    assert sections == set(COMMANDS) == {shlex.split(line)[0] for line in EXAMPLES}


def test_options_of_the_examples_exist():
    used = [(name, word) for name, *words in map(shlex.split, EXAMPLES) for word in words if word.startswith("-")]
    assert len(used) > 20
    for name, option in used:
        assert any(option in parameter.opts for parameter in COMMANDS[name].params), f"{name} {option}"
