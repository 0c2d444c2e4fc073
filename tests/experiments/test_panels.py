"""Figure 2, right, and Figure 4: maps beside the records, and photos only where they stay."""

import torch
from safetensors.torch import load_file

from axiograd.experiments import panels
from axiograd.experiments.records import read


def test_shapes_are_shown(quick, tmp_path):
    done = quick("fig4")
    assert len(done.table.rows) == 8
    for row in done.table.rows:
        to_ig, change = float(row[2]), float(row[4])
        # In float32 a ReLU at zero may switch with the order of a sum, and take its path's share with it.
        assert (to_ig < 0.02 and change < 0.02) == (row[1] == "small network, X"), row
    folder = tmp_path / "fig4"
    pieces = read(folder / "quick.json").pieces
    assert len(pieces) == 4
    kept = load_file(folder / pieces[0].values["maps"])
    # Two contrasts, X-Gradient and IG of the X-DNN, then I×G and IG of the regular network.
    assert kept["maps"].shape == (2, 4, 32, 32)
    assert int(kept["maps"].max()) == 127
    # The same map at both contrasts, up to a level of 255 where a value lies between two.
    assert int((kept["maps"][0, 0].int() - kept["maps"][1, 0].int()).abs().max()) <= 1
    assert kept["image"].shape == (3, 32, 32)
    assert not list(folder.glob("*.photos.*"))


def test_photos_are_in_files_of_their_own(full, tmp_path):
    full("fig2-right")
    folder = tmp_path / "results" / "fig2-right"
    (piece,) = read(folder / "full.json").pieces
    assert load_file(folder / piece.values["maps"]).keys() == {"maps"}
    public, private = (folder / f"full{kind}.png" for kind in ("", ".photos"))
    assert public.read_bytes() != private.read_bytes()


def test_large_maps_are_averaged():
    assert panels.byte_map(torch.ones(3, 128, 128)).shape == (128, 128)
    assert panels.byte_map(torch.ones(3, 224, 224)).shape == (112, 112)
