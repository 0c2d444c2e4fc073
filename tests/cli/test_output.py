"""What hides in names is shown, and a missing dependency is not an answer."""

import subprocess
import sys

from PIL import Image

from axiograd.report import Report
from support.command import axiograd

HOSTILE = "photo\u202egpj.exe\u2066\u200b.png"


def test_characters_that_reorder_text_are_shown(tmp_path):
    report = Report("A title", lead=f"About {HOSTILE}", model_name=HOSTILE)
    page = report.write(tmp_path / "page.html").read_text()
    assert "photo⟨U+202E⟩gpj.exe⟨U+2066⟩⟨U+200B⟩.png" in page
    assert not {"\u202e", "\u2066", "\u200b"} & set(page)


def test_names_do_not_steer_the_terminal(tmp_path):
    file = tmp_path / f"\x1b[31m{HOSTILE}"
    Image.new("RGB", (32, 32)).save(file)
    options = ("--set", "num_classes=2", "--size", "32", "--no-figures", "-o", tmp_path / "o", "--set", "small=true")
    done = axiograd("explain", "xalexnet", file, *options, "--set", "width=0.05", "--set", "hidden=8")
    assert done.code == 0, done.err
    assert "\u202e" not in done.out + done.err
    assert "\x1b[31m" not in done.out + done.err
    assert "U+202E" in done.out.replace("\n", "")
    missing = axiograd("explain", "xalexnet", tmp_path / HOSTILE)
    assert "202e" in missing.err
    assert "\u202e" not in missing.err


def test_without_typer_the_exit_code_is_not_an_answer():
    code = "import sys; sys.modules['typer'] = None; from axiograd.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'axiograd[cli]'" in done.stderr
