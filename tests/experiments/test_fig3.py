"""Figure 3, quick and at full scale in miniature."""


def test_one_step_is_the_integral_on_an_x_dnn(quick, tmp_path):
    done = quick("fig3")
    assert done.table.header == ("steps", "small network, regular", "small network, X", "paper")
    (n, regular, x, paper), last = done.table.rows
    assert (n, paper) == (1, None)
    # In float32 a ReLU at zero may switch with the order of a sum, and take its path's share with it.
    assert float(x) < min(0.5, float(regular) / 10)
    assert float(last[1]) < float(done.table.rows[0][1])
    assert (tmp_path / "fig3" / "quick.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fig3" / "quick.pdf").read_bytes().startswith(b"%PDF")
    assert "3 images" in done.table.note


def test_full_scale(full):
    assert full("fig3").table.header == ("steps", "AlexNet, regular", "AlexNet, X", "paper")
