"""Exit codes, errors and what is left behind: the same for every subcommand."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from axiograd.cli.app import SUBCOMMANDS, exit_code
from axiograd.errors import ConversionError, DataMissingError, InputError, NotHomogeneousError, StorageError
from support.command import axiograd


def test_help_teaches_and_has_an_example_each():
    page = axiograd("--help").out
    for command in SUBCOMMANDS:
        assert command.__name__ in page
        shown = " ".join(axiograd(command.__name__, "--help").out.split())
        assert f"axiograd {command.__name__}" in shown.replace("Usage: axiograd " + command.__name__, "", 1)
    assert "Exit codes: 0 done" in page


def test_exit_codes():
    assert [exit_code(kind("x")) for kind in (NotHomogeneousError, ConversionError)] == [1, 1]
    assert [exit_code(kind("x")) for kind in (InputError, ValueError, RuntimeError)] == [2, 2, 2]
    assert [exit_code(kind("x")) for kind in (DataMissingError, StorageError, OSError)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("fails", "mine.py:fails raised ValueError, line 29: no luck today"),
        ("leaves", "raised SystemExit, line 33: 7"),
        ("a_list", "must make a torch.nn.Module, not list"),
        ("number", "is of type int"),
        ("nothing", "has no 'nothing'"),
        ("Raises", "not today"),
    ],
)
def test_a_users_code_that_fails_is_one_sentence(mine, factory, words):
    done = axiograd("check", f"{mine}:{factory}", "--shape", "4")
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_library_at_all", "ModuleNotFoundError, line 1: No module named 'no_such_library_at_all'"),
        ("def build(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError, line 1"),
    ],
)
def test_a_users_file_that_cannot_be_imported(tmp_path, source, words):
    (tmp_path / "broken.py").write_text(source + "\n")
    done = axiograd("check", f"{tmp_path / 'broken.py'}:build")
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_model_that_raises_while_it_is_explained(mine, table):
    options = ("--drop", "id,ill", "--missing", "zero", "-m", "gradient")
    done = axiograd("explain", f"{mine}:Raises", table, *options)
    assert (done.code, done.out) == (2, "")
    source = mine.read_text()
    line = 1 + source[: source.index("not today")].count("\n")
    assert "RuntimeError: not today (" in done.err
    assert f"mine.py:{line};" in done.err


def test_debug_shows_the_traceback_wherever_it_stands(mine):
    for arguments in (("--debug", "check", f"{mine}:fails"), ("check", f"{mine}:fails", "--debug")):
        with pytest.raises(Exception, match="no luck today"):
            axiograd(*arguments)


def test_missing_files_are_3(mine, tmp_path):
    for arguments in (
        ("check", tmp_path / "no.py:build"),
        ("check", f"{mine}:build", "--weights", tmp_path / "no.pt"),
        ("check", tmp_path / "no.safetensors"),
        ("explain", f"{mine}:build", tmp_path / "no.jpg"),
        ("explain", f"{mine}:table", tmp_path / "no.csv"),
        ("evaluate", f"{mine}:build", "--data", tmp_path / "nowhere"),
        ("train", tmp_path / "no.toml"),
    ):
        done = axiograd(*arguments)
        assert done.code == 3, done.err
        assert str(arguments[-1]).split(":")[0] in done.err


def test_output_that_cannot_be_written_is_3(mine, photos, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for arguments in (
        ("convert", f"{mine}:build", "--how", "strip", "-o", tmp_path / "file" / "x.safetensors"),
        ("explain", f"{mine}:build", photos / "cat", "-m", "gradient", "-o", tmp_path / "file", "--size", "16"),
        ("demo", "--images", "8", "--out", tmp_path / "file"),
    ):
        done = axiograd(*arguments)
        assert done.code == 3, done.err
        assert "file" in done.err
        assert "Traceback" not in done.err
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "{build}", "{photos}", "-m", "magic"), "no method 'magic'"),
        (("explain", "{build}", "{photos}", "-m", "gradient", "--target", "9"), "classes 0 to 2"),
        (("explain", "{build}", "{photos}", "-m", "gradient", "--target", "horse"), "--target horse"),
        (("explain", "{build}", "{photos}", "--mean", "1,2"), "one number or three"),
        (("explain", "{build}", "{photos}", "--std", "0"), "positive"),
        (("explain", "{build}", "{photos}", "--preprocess", "magic"), "--preprocess magic"),
        (("explain", "{build}", "{photos}", "--kind", "magic"), "--kind magic"),
        (("evaluate", "{build}", "--data", "{photos}", "--metrics", "magic"), "--metrics magic"),
        (("convert", "{build}", "-o", "x.pt"), "ends in .safetensors"),
        (("convert", "{build}", "-o", "x.safetensors", "--how", "magic"), "--how magic"),
        (("check", "{build}", "--set", "classes"), "NAME=VALUE"),
        (("check", "{build}", "--set", "colours=3"), "unexpected keyword argument 'colours'"),
        (("check", "xmlp", "--set", "colours=3"), "has no setting"),
        (("audit", "magic"), "neither a method"),
        (("models", "magic*"), "no model matches"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_use_is_2(mine, photos, arguments, words):
    done = axiograd(*(each.format(build=f"{mine}:build", photos=photos) for each in arguments))
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_stdout_has_the_json_alone(mine):
    done = axiograd("check", f"{mine}:talks", "--json")
    assert done.json["ok"]
    assert "hello from the factory" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interruption_leaves_nothing_half_written(mine, photos, tmp_path, number):
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\nfrom mine import build\n"
        "write = pathlib.Path.write_bytes\n"
        "def slow(path, data):\n"
        "    write(path, data[:100])\n"
        "    if len(data) < 100:\n"
        "        return\n"
        f"    pathlib.Path({str(tmp_path / 'started')!r}).touch()\n"
        "    time.sleep(60)\n"
        "pathlib.Path.write_bytes = slow\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-m", "axiograd", "convert", f"{tmp_path / 'slow.py'}:build", "--how", "strip"]
    # Where the tests run in the background, SIGINT is ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*command, "-o", str(out / "x.safetensors"), "--shape", "3,16,16"], stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "started").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        half_written = len(list(out.iterdir()))
        process.send_signal(number)
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert half_written == 1
    assert process.returncode == (130 if number == signal.SIGINT else 143), err
    assert not list(out.iterdir())
    assert "Traceback" not in err


def test_a_pipe_that_is_closed_early_is_no_error():
    command = f"{sys.executable} -m axiograd datasets | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert "Traceback" not in done.stderr
    assert "data set" in done.stdout


def test_json_of_the_lists():
    assert {"xmlp", "mlp"} <= {row["name"] for row in axiograd("models", "*mlp", "--json").json}
    rows = axiograd("datasets", "--json").json
    assert next(row for row in rows if row["loader"] == "shapes")["present"]
    assert json.dumps(rows)


def test_shells_complete_names():
    from axiograd.cli.options import complete_inputs, complete_methods, complete_models

    assert complete_models("xsq") == ["xsqueezenet1_0", "xsqueezenet1_1"]
    assert complete_methods("x-gradient,integ") == ["x-gradient,integrated-gradients"]
    assert complete_inputs("nh") == ["nhanes"]


@pytest.mark.parametrize("words", [(), ("SIGINT: stopped after step 3, saved in runs/x.",)])
def test_what_has_said_what_it_kept_is_not_contradicted(monkeypatch, words):
    from axiograd.cli import models as module

    def interrupted(*_given, **_named):
        raise KeyboardInterrupt(*words)

    monkeypatch.setattr(module, "speaking", interrupted)
    done = axiograd("models")
    assert done.code == 130
    assert ("was not kept" in done.err) == (not words)
