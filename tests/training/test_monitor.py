import csv

import pytest

from axiograd.training.monitor import Bar, Means, MetricsLog


def row(step, **more):
    return {"kind": "steps", "step": step, "total": 0.5, "validation": "", **more}


def read(path):
    with path.open(newline="") as file:
        return [(line["kind"], int(line["step"]), line["validation"]) for line in csv.DictReader(file)]


def test_rows_after_the_resumed_step_are_done_again(tmp_path):
    log = MetricsLog(tmp_path)
    for step in (2, 4, 6):
        log.write(row(step))
    log.close()
    with log.path.open("a") as file:
        file.write("steps,8,0.")  # killed in the middle of a line
    log = MetricsLog(tmp_path, resumed_step=4)
    log.write(row(6, kind="epoch", validation=0.25))
    log.close()
    assert read(log.path) == [("steps", 2, ""), ("steps", 4, ""), ("epoch", 6, "0.25")]
    log = MetricsLog(tmp_path)
    assert not log.path.exists()
    log.close()


def test_tensorboard_has_the_same_numbers(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsLog(tmp_path)
    log.write(row(2, total=0.125))
    log.write(row(4, total=0.0625))
    log.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("steps/total")] == [(2, 0.125), (4, 0.0625)]


def test_means_go_on_from_their_sums():
    whole, first = Means(), Means()
    for i in range(6):
        whole.add({"a": 0.1 * i}, 3)
    for i in range(3):
        first.add({"a": 0.1 * i}, 3)
    second = Means(first.sums, first.count)
    for i in range(3, 6):
        second.add({"a": 0.1 * i}, 3)
    assert second.values() == whole.values()
    assert 0 < second.speed() < whole.speed() * 1e6


def test_the_bar_shows_terms_and_speed(capsys):
    with Bar(shown=True, total=10) as bar:
        bar.update(3, "epoch 1/2", {"task": 0.5, "prior": 0.25}, 1234.0)
    shown = " ".join(capsys.readouterr().err.split())
    assert "epoch 1/2" in shown
    assert "3/10" in shown
    assert "task 0.5 prior 0.25" in shown
    with Bar(shown=False, total=10) as bar:
        bar.update(3, "epoch 1/2", {}, 1.0)
    assert not capsys.readouterr().err
