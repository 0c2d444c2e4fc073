"""The runner: nothing is computed twice, several processes give what one gives, stages wait for each other."""

import json
import time

import pytest

from axiograd.errors import ConfigurationError, StorageError
from axiograd.experiments.item import Item, Plan, Setting, Table, Work
from axiograd.experiments.records import read
from axiograd.experiments.reproduce import ITEMS, ProcessShare, find, run
from support.children import processes
from support.killable import in_child


class Counting:
    """An item that squares numbers, and in a second stage adds them up; it notes what it computes."""

    def __init__(self, n=6, *, stages=1, fail_at=None, settings=None):
        self.n, self.stages, self.fail_at, self.computed = n, stages, fail_at, []
        self.settings = settings or {"power": 2}
        self.item = Item("counting", "Counting", self.plan, self.table)

    def plan(self, setting):
        return Plan("integers", self.settings, (self.squares, self.total)[: self.stages])

    def squares(self, records):
        return [Work({"n": n}, lambda n=n: self.square(n), cost=n + 1) for n in range(self.n)]

    def square(self, n):
        if n == self.fail_at:
            raise RuntimeError("power cut")
        self.computed.append(n)
        return {"square": n**2}

    def total(self, records):
        found = [piece.values["square"] for piece in records.pieces if "square" in piece.values]
        return [Work({"total": len(found)}, lambda: {"total": sum(found)})]

    def table(self, records):
        ordered = sorted(piece.key["n"] for piece in records.pieces if "n" in piece.key)
        return Table(("n", "square"), tuple((n, records.get(n=n)["square"]) for n in ordered))

    def run(self, out, **options):
        return run(self.item, Setting("real"), out, command="count", **options)


def test_pieces_that_were_removed_and_done_again_are_in_their_place(tmp_path):
    Counting().run(tmp_path)
    path = tmp_path / "counting" / "real.json"
    content = json.loads(path.read_text())
    del content["pieces"][2]
    path.write_text(json.dumps(content))
    again = Counting()
    again.run(tmp_path)
    assert again.computed == [2]
    assert [piece.key["n"] for piece in read(path).pieces] == [0, 1, 2, 3, 4, 5]


def test_an_interrupted_stage_goes_on_where_it_stopped(tmp_path):
    broken = Counting(fail_at=3)
    with pytest.raises(RuntimeError, match="power cut"):
        broken.run(tmp_path)
    assert broken.computed == [0, 1, 2]
    fixed = Counting()
    done = fixed.run(tmp_path)
    assert fixed.computed == [3, 4, 5]
    assert done.table.rows == tuple((n, n**2) for n in range(6))
    assert (done.missing, done.total) == (0, 6)
    again = Counting()
    again.run(tmp_path)
    assert again.computed == []


def test_files(tmp_path):
    done = Counting().run(tmp_path)
    folder = tmp_path / "counting"
    assert [path.name for path in done.files] == ["real.json", "real.csv", "real.md"]
    assert (folder / "real.csv").read_text().startswith("n,square\n0,0\n1,1\n")
    page = (folder / "real.md").read_text()
    assert page.startswith("# Counting\n\n| n | square |")
    assert "Made by `count`" in page
    assert "Not complete" not in page


def test_parts_merge_into_what_one_process_gives(tmp_path):
    whole = Counting()
    expected = whole.run(tmp_path / "one")
    parts = [Counting() for _ in range(3)]
    for number, part in enumerate(parts, start=1):
        done = part.run(tmp_path / "three", share=ProcessShare(number, 3))
        assert done.missing == 6 - 2 * number
        complete = number == 3
        assert (tmp_path / "three" / "counting" / "real.md").exists() == complete
        assert len(list((tmp_path / "three" / "counting").glob("real.part-*"))) == (0 if complete else number)
    assert [part.computed for part in parts] == [[0, 3], [1, 4], [2, 5]]
    assert done.table == expected.table
    merged = read(tmp_path / "three" / "counting" / "real.json")
    assert [(p.key["n"], p.values["square"]) for p in merged.pieces] == [(n, n**2) for n in range(6)]


def test_another_number_of_processes_goes_on_with_what_the_first_ones_left(tmp_path):
    Counting().run(tmp_path, share=ProcessShare(1, 3))
    rest = Counting()
    done = rest.run(tmp_path)
    assert rest.computed == [1, 2, 4, 5]
    assert done.missing == 0


def test_a_stage_waits_for_the_one_before(tmp_path):
    first = Counting(stages=2)
    with pytest.raises(ConfigurationError, match="stage 1 of 2 has 3 pieces that other processes"):
        first.run(tmp_path, share=ProcessShare(1, 2))
    Counting(stages=2).run(tmp_path, share=ProcessShare(2, 2))
    done = Counting(stages=2).run(tmp_path, share=ProcessShare(1, 2))
    assert done.missing == 0
    assert read(tmp_path / "counting" / "real.json").get(total=6) == {"total": 55}


def test_two_stages_in_one_process(tmp_path):
    done = Counting(stages=2).run(tmp_path)
    assert (done.missing, done.total) == (0, 7)


def test_other_settings_are_refused(tmp_path):
    Counting().run(tmp_path)
    with pytest.raises(StorageError, match=r"power \(there: 2, here: 3\)"):
        Counting(settings={"power": 3}).run(tmp_path)


def test_only_render_computes_nothing(tmp_path):
    with pytest.raises(ConfigurationError, match="nothing to render"):
        Counting().run(tmp_path, only_render=True)
    with pytest.raises(RuntimeError):
        Counting(fail_at=4).run(tmp_path)
    item = Counting()
    done = item.run(tmp_path, only_render=True)
    assert item.computed == []
    assert (done.missing, done.total) == (2, 6)
    assert "**Not complete: 2 of 6 pieces are missing.**" in (tmp_path / "counting" / "real.md").read_text()
    assert read(tmp_path / "counting" / "real.json").missing == "2 of 6 pieces are missing"
    item.run(tmp_path)
    assert "Not complete" not in (tmp_path / "counting" / "real.md").read_text()
    assert read(tmp_path / "counting" / "real.json").missing == ""


def test_shares(monkeypatch):
    assert ProcessShare.ensure("3/4") == ProcessShare(3, 4)
    for wrong in ("0/2", "3/2", "2", "a/b"):
        with pytest.raises(ConfigurationError, match="such as 2/8"):
            ProcessShare.ensure(wrong)
    assert ProcessShare.ensure(None) == ProcessShare(1, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ProcessShare.ensure(None) == ProcessShare(2, 2)


def test_every_item_is_there():
    for name in ITEMS:
        assert find(name).name == name
    with pytest.raises(ConfigurationError, match="no item 'table9'; there are: table1"):
        find("table9")


def test_a_killed_process_leaves_its_pieces(tmp_path):
    process = processes().Process(target=in_child, args=("reproduce", tmp_path, 0.2))
    process.start()
    path = tmp_path / "squares" / "real.json"
    limit = time.monotonic() + 60
    while not path.exists() and time.monotonic() < limit:
        time.sleep(0.01)
    process.kill()
    process.join()
    pieces = json.loads(path.read_text())["pieces"]
    assert 0 < len(pieces) < 20
    assert [piece["values"] for piece in pieces] == [{"square": n**2} for n in range(len(pieces))]


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    (tmp_path / "counting").mkdir()
    (tmp_path / "counting" / ".real.json.tmp").write_text("{")
    Counting().run(tmp_path)
    assert not (tmp_path / "counting" / ".real.json.tmp").exists()
