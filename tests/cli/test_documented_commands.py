"""Every `axiograd …` line in the code blocks of README and docs parses, and runs on small files of the same names."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from axiograd.cli.app import app
from support.command import axiograd

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )?axiograd ([a-z].*)$", re.MULTILINE)
PAGES = {
    page: page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}


def documented():
    """Command lines, without the comment or description that may follow one after two spaces."""
    found = []
    for text in PAGES.values():
        for block in BLOCK.findall(text):
            for line in LINE.findall(block):
                command = re.split(r"\s{2,}|\s#", line)[0]
                if command.startswith("studio at "):  # what the studio prints
                    continue
                # "attribute · compare" names two commands.
                found += [f"{name} " for name in command.split(" · ")] if " · " in command else [command]
    return sorted({command.strip() for command in found})


DOCUMENTED = documented()
#: What is not run here, by how it begins, and which tests run it instead.
ELSEWHERE = {
    "studio": "serves until it is stopped: tests/studio",
    "demo": "trains for minutes: tests/cli/test_demo.py",
}
RUN = [
    line
    for line in DOCUMENTED
    if not line.startswith(tuple(ELSEWHERE)) and " --workers" not in line and line not in COMMANDS
]
#: What comes before a line in the docs, or elsewhere than it.
BEFORE = {
    "compare monday/": [f"attribute lifted.safetensors --data photos/ --out {day}/" for day in ("monday", "tuesday")],
    "check model.onnx": ["export stripped.safetensors -o model.onnx"],
    "net.py:build photos/ --weights x": ["convert net.py:build --how lift --examples photos/ -o x.safetensors"],
    "runs/patients": ["train patients.toml"],
    "runs/pets": ["train pets.toml"],
}
#: What makes a line small enough for a test.
SMALLER = {
    " --weights default --examples photos/ -o": " --weights default --how lift --examples photos/ -o",
    " imagenet_sample --limit 50": " photos/",
    " tiny_imagenet --weights default --metrics": " tiny_imagenet --weights default --limit 2 --metrics",
}


def test_every_command_is_documented():
    assert len(DOCUMENTED) > 30
    assert {shlex.split(line)[0] for line in DOCUMENTED} == set(COMMANDS)


def test_every_command_has_a_section_of_its_page():
    page = PAGES[ROOT / "docs" / "command.md"]
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert set(COMMANDS) <= {name for title in titles for name in title.split(", ")}


@pytest.mark.parametrize("line", DOCUMENTED)
def test_it_parses(line):
    name, *words = shlex.split(line)
    # A bare name in a list of commands may lack its arguments.
    COMMANDS[name].make_context(name, words, resilient_parsing=not words)


def config(name):
    """The TOML block of the docs that writes to runs/NAME, with one epoch."""
    blocks = [block for text in PAGES.values() for block in BLOCK.findall(text)]
    block = next(block for block in blocks if block.startswith(f'out = "runs/{name}"'))
    return re.sub(r"epochs = \d+", "epochs = 1", block)


@pytest.mark.parametrize("line", RUN)
def test_it_runs(line, documented_files, tmp_path, monkeypatch):
    here = tmp_path / "here"
    shutil.copytree(documented_files, here)
    monkeypatch.chdir(here / "pets" if "pets" in line else here)
    for name in ("pets", "patients", "decoy"):
        Path(f"{name}.toml").write_text(config(name))
    before = next((lines for words, lines in BEFORE.items() if words in line), [])
    for documented, smaller in SMALLER.items():
        line = line.replace(documented, smaller)
    for each in [*before, line]:
        done = axiograd(*shlex.split(each))
        # 1 is an answer: not an X-DNN.
        assert done.code in ({0, 1} if each.startswith("check") else {0}), done.err
