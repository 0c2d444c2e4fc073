"""Results know the code that made them."""

from pathlib import Path

from axiograd.experiments import code, results_page, table1
from axiograd.experiments.item import Setting
from axiograd.experiments.records import read
from axiograd.experiments.reproduce import find, older_than_their_code, run

SRC = Path(code.__file__).parents[2]


def sources(folder: Path, **files: str) -> Path:
    """A package of a few modules, in place of ours."""
    for name, text in files.items():
        path = folder / "axiograd" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def digest(folder, monkeypatch, **files):
    monkeypatch.setattr(code, "SRC", sources(folder, **files))
    code.digest.cache_clear()
    return code.digest("axiograd.top")


def test_the_digest_follows_imports_and_leaves_words_out(tmp_path, monkeypatch):
    files = {"top": "def f():\n    from axiograd import low\n    return low.x", "low": "x = 1", "other": "y = 1"}
    try:
        before = digest(tmp_path, monkeypatch, **files)
        assert digest(tmp_path, monkeypatch, low='"""Words."""\nx = 1  # more words') == before
        assert digest(tmp_path, monkeypatch, other="y = 2") == before
        assert digest(tmp_path, monkeypatch, low="x = 2") != before
    finally:
        code.digest.cache_clear()


def test_a_result_is_old_when_other_code_made_it(tmp_path, monkeypatch, capsys):
    first = {"gradient": table1.columns()["gradient"]}
    monkeypatch.setattr(table1, "columns", lambda **_: first)
    run(find("table1"), Setting("quick"), tmp_path, command="axiograd reproduce table1 --quick")
    versions = read(tmp_path / "table1" / "quick.json").pieces[0].versions
    assert versions["code"] == code.digest("axiograd.experiments.table1")
    assert older_than_their_code(tmp_path) == []
    monkeypatch.setattr("axiograd.experiments.reproduce.digest", lambda _: "another")
    (line,) = older_than_their_code(tmp_path)
    assert line.startswith("table1 (quick): ")
    monkeypatch.setattr("sys.argv", ["results_page", "--old", "--results", str(tmp_path)])
    results_page.main()
    assert capsys.readouterr().out == line + "\n"


def test_the_commit_is_that_of_the_checkout(tmp_path, monkeypatch):
    code.commit.cache_clear()
    monkeypatch.setattr(code, "SRC", sources(tmp_path, top=""))
    try:
        assert code.commit() == ""  # not a checkout
    finally:
        code.commit.cache_clear()
