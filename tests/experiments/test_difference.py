"""Table 2's difference to Integrated Gradients, quick and at full scale in miniature."""

from axiograd.experiments.records import read


def test_x_dnns_are_integrated_gradients_and_regular_networks_are_not(quick, tmp_path):
    done = quick("difference")
    regular, x = done.table.rows
    far, near = (float(row[2].split()[0]) for row in (regular, x))
    # In float32 a ReLU at zero may switch with the order of a sum, and take its path's share with it.
    assert near < 2
    assert far > 10 * near
    assert (regular[5:7], x[5:7]) == (("AlexNet", 79.0), ("AlexNet", 1.2))
    assert regular[-1] == x[-1] == 3
    piece = read(tmp_path / "difference" / "quick.json").get(network="small", form="X", images=[0, 2])
    assert len(piece["value"]) == len(piece["plain"]) == 2


def test_full_scale(full):
    rows = full("difference").table.rows
    assert [row[6] for row in rows] == [79.0, 1.2, 97.8, 0.4, 93.8, 0.0]
    for row in rows:
        if row[0].endswith("X"):
            assert float(row[2].split()[0]) < 0.1
