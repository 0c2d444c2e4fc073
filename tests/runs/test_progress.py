from axiograd.runs.progress import progress_bar


def test_the_bar_shows_what_is_done_and_a_note(capsys):
    with progress_bar("epoch 1/2", total=10, shown=True) as update:
        update(completed=3, note="task 0.5 · 12 samples/s")
    shown = " ".join(capsys.readouterr().err.split())
    assert "epoch 1/2" in shown
    assert "3/10" in shown
    assert "task 0.5" in shown


def test_no_terminal_no_bar(capsys):
    for shown in (False, None):
        with progress_bar("epochs", total=10, shown=shown) as update:
            update(advance=1)
    assert not capsys.readouterr().err
