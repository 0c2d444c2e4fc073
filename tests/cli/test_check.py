"""`axiograd check`: the verdict, the exit code, and the command that makes it an X-DNN."""

import shlex

from support.command import axiograd


def test_an_x_dnn_is_certified(mine):
    done = axiograd("check", f"{mine}:table")
    assert done.code == 0
    assert "✓" in done.out
    assert axiograd("check", "xsqueezenet1_1", "--json").json["ok"]


def test_what_breaks_it_and_what_to_run(mine, photos):
    done = axiograd("check", f"{mine}:build", "--shape", "3,16,16")
    assert done.code == 1
    assert "bias" in done.out
    assert "net.py" not in done.err
    command = done.err.partition("or more: ")[2].strip()
    assert command == f"axiograd convert {mine}:build --out x.safetensors --examples FOLDER"
    words = shlex.split(command.replace("FOLDER", str(photos)).replace("x.safetensors", str(photos / "x.safetensors")))
    assert axiograd(*words[1:], "--how", "strip").code == 0


def test_the_shape_is_found_by_trial(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Conv2d(1, 2, 5, bias=False), nn.Flatten(), nn.Linear(1152, 3, bias=False))\n"
    )
    assert axiograd("check", f"{tmp_path}/net.py:build").code == 0


def test_what_removing_biases_would_cost(table):
    done = axiograd("check", f"{table.with_suffix('.py')}:normalised", "--examples", table, "--json")
    assert done.code == 2
    assert "at least four samples" in done.err
    table.write_text(table.read_text() + "4,40,65,60,300,0\n5,60,75,80,500,1\n")
    done = axiograd("check", f"{table.with_suffix('.py')}:normalised", "--examples", table, "--json")
    assert done.code == 0, done.err
    assert done.json["examples"].startswith("5 of")
