import csv

import pytest

from axiograd.errors import StorageError
from axiograd.training.logs import Means, MetricsLog


def row(step, **more):
    return {"kind": "steps", "step": step, "epoch": 1, "lr": 0.1, "total": 0.5, "validation": "", **more}


def read(path):
    with path.open(newline="") as file:
        return [(line["kind"], int(line["step"]), line["validation"]) for line in csv.DictReader(file)]


def test_rows_after_the_mark_are_done_again(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(row(2))
    log.write(row(4))
    mark = log.mark
    log.write(row(4, kind="epoch", validation=0.5))  # of the same step, and after the checkpoint
    log.write(row(6))
    log.close()
    with log.path.open("a") as file:
        file.write("steps,8,0.")  # killed in the middle of a line
    log = MetricsLog(tmp_path, 4, mark)
    log.write(row(6, kind="epoch", validation=0.25))
    log.close()
    assert read(log.path) == [("steps", 2, ""), ("steps", 4, ""), ("epoch", 6, "0.25")]
    log = MetricsLog(tmp_path)
    assert not log.path.exists()
    log.close()


def test_a_log_that_was_changed_or_is_gone_is_told_of(tmp_path):
    log = MetricsLog(tmp_path)
    for step in (2, 4, 6):
        log.write(row(step))
    mark = log.mark
    log.close()
    log.path.write_text(log.path.read_text().replace("0.5", "0.7") + "steps,8")
    with pytest.warns(UserWarning, match="was changed since the checkpoint at step 4"):
        MetricsLog(tmp_path, 4, mark).close()
    assert read(log.path) == [("steps", 2, ""), ("steps", 4, "")]
    log.path.unlink()
    with pytest.warns(UserWarning, match="is gone"):
        MetricsLog(tmp_path, 4, mark).close()


def test_a_foreign_file_is_not_touched(tmp_path):
    (tmp_path / "metrics.csv").write_text("name,score\nme,1\n")
    with pytest.raises(StorageError, match=r"is not the log of a run .*Move it away"):
        MetricsLog(tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == "name,score\nme,1\n"


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
