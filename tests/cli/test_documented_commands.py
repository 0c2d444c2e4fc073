"""Every `axiograd …` line in the code blocks of README and docs parses; those that need only the package are run."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from axiograd.cli.app import app
from support.command import axiograd

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )?axiograd ([a-z].*)$", re.MULTILINE)


def documented():
    """Command lines, without the comment or description that may follow one after two spaces."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in LINE.findall(block):
                command = re.split(r"\s{2,}|\s#", line)[0]
                if command.startswith("studio at "):  # what the studio prints
                    continue
                # "models · datasets" names two commands.
                found += [f"{name} " for name in command.split(" · ")] if " · " in command else [command]
    return sorted({command.strip() for command in found})


DOCUMENTED = documented()


def test_commands_are_found():
    assert len(DOCUMENTED) > 40
    assert {shlex.split(line)[0] for line in DOCUMENTED} == set(COMMANDS)


@pytest.mark.parametrize("line", DOCUMENTED)
def test_it_parses(line):
    name, *words = shlex.split(line)
    # A bare name in a list of commands may lack its arguments.
    COMMANDS[name].make_context(name, words, resilient_parsing=not words)


@pytest.mark.parametrize("line", ["models", "models 'x*'", "datasets", "check xmlp", "audit x-gradient xmlp"])
def test_it_runs(line):
    assert axiograd(*shlex.split(line)).code == 0


def test_models_lists_all_with_their_sizes():
    rows = {row["name"]: row for row in json.loads(axiograd("models", "--json").out)}
    assert rows["alexnet"]["parameters"] == 61_100_840
    assert {"xvit", "text_encoder"} <= rows.keys()
