"""Exit codes, errors and what is left behind: the same for every subcommand."""

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
        name = command.__name__.removesuffix("_all")
        assert name in page
        shown = " ".join(axiograd(name, "--help").out.split())
        assert f"axiograd {name}" in shown.replace("Usage: axiograd " + name, "", 1)
    assert "Exit codes: 0 done" in page


def test_torch_is_not_imported_for_help():
    code = "import sys, axiograd.cli.app; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


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
        ("train", tmp_path / "no.toml"),
    ):
        done = axiograd(*arguments)
        assert done.code == 3, done.err
        assert str(arguments[-1]).split(":")[0] in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "{build}", "{photos}", "-m", "magic"), "no method 'magic'"),
        (("explain", "{build}", "{photos}", "-m", "gradient", "--target", "9"), "classes 0 to 2"),
        (("explain", "{build}", "{photos}", "-m", "gradient", "--target", "horse"), "--target horse"),
        (("explain", "{build}", "{photos}", "--preprocess", "mean=1/2"), "one number or three"),
        (("explain", "{build}", "{photos}", "--preprocess", "std=0"), "one number or three"),
        (("explain", "{build}", "{photos}", "--preprocess", "imagnet"), "did you mean 'imagenet'"),
        (("explain", "{build}", "{photos}", "--metrics", "magic"), "--metrics magic"),
        (("explain", "{build}", "{photos}", "--versus", "x"), "--versus x does not apply"),
        (("explain", "{build}", "{photos}", "--column", "y"), "--column y"),
        (("explain", "{build}", "{photos}", "--metrics", "all", "--pool", "4"), "--pool 4 does not apply"),
        (("explain", "{build}", "{photos}", "--device", "magic"), "--device magic"),
        (("check", "{build}", "--preprocess", "pixels"), "does not apply"),
        (("convert", "{build}", "-o", "x.safetensors", "--examples", "{photos}", "--shape", "3"), "does not apply"),
        (("convert", "{build}", "-o", "x.pt"), "ends in .safetensors"),
        (("convert", "{build}", "-o", "x.safetensors", "--how", "magic"), "--how"),
        (("studio", "--demo", "--weights", "x.pt"), "does not apply"),
        (("check", "{build}", "--set", "classes"), "NAME=VALUE"),
        (("check", "{build}", "--set", "colours=3"), "unexpected keyword argument 'colours'"),
        (("check", "xmlp", "--set", "colours=3"), "has no setting"),
        (("list", "magic*"), "no model and no data set matches"),
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


def test_an_interruption_leaves_nothing_half_written(mine, tmp_path):
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
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert half_written == 1
    assert process.returncode == 130, err
    assert not list(out.iterdir())
    assert "Traceback" not in err


def test_the_list_has_models_and_data_sets():
    found = axiograd("list", "--json").json
    rows = {row["name"]: row for row in found["models"]}
    assert rows["alexnet"]["parameters"] == 61_100_840
    assert next(row for row in found["datasets"] if row["loader"] == "shapes")["present"]
    assert {row["name"] for row in axiograd("list", "*mlp", "--json").json["models"]} == {"mlp", "xmlp"}
