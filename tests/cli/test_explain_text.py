"""Texts on the command line: files and tables in, coloured words, images and a page out."""

import json

import pytest

from axiograd import text as axiotext
from support.command import axiograd
from support.texts import sequence_classifier, word_pieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    sequence_classifier().save_pretrained(path)
    word_pieces().save_pretrained(path)
    return path


def test_a_text_file(folder, tmp_path):
    review = tmp_path / "review.txt"
    review.write_text("A wonderful film, truly <b>wonderful</b>!\n", encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / "text-0001.svg").write_text("of an earlier run with more texts")
    (out / "text-mine.svg").write_text("not ours")
    how = ("--steps", "50", "--target", "good", "--versus", "bad")
    done = axiograd("explain", f"hf:{folder}", review, *how, "--out", out, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    expected = axiotext.explain(
        sequence_classifier(),
        word_pieces(),
        review.read_text().strip(),
        "good",
        versus="bad",
    )
    found = answer["texts"][0]
    assert [w["text"] for w in found["words"]] == [w.text for w in expected.words]
    assert [w["value"] for w in found["words"]] == pytest.approx([w.value for w in expected.words], rel=1e-4, abs=1e-6)
    assert "<b>" not in (out / "report.html").read_text().split("</h1>")[1].replace("<b>good", "")
    assert (out / "text-0000.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in out.glob("*.svg")) == ["text-0000.svg", "text-mine.svg"]


def test_a_table_of_texts(folder, tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('id,review\n1,"a wonderful film, and warm"\n2,"an awful\nplot"\n', encoding="utf-8")
    done = axiograd("explain", f"hf:{folder}", table, "--method", "input-x-gradient", "--no-figures", "--no-report")
    assert done.code == 0, done.err
    assert "texts.csv:2" in done.out
    assert "wonderful" in done.out
    wrong = axiograd("explain", f"hf:{folder}", table, "--column", "reviw", "--method", "input-x-gradient")
    assert wrong.code != 0
    assert "did you mean 'review'" in wrong.err


def test_what_cannot_be_read_is_said(folder, tmp_path):
    missing = axiograd("explain", f"hf:{folder}", tmp_path / "none.txt")
    assert missing.code != 0
    assert "there is no file" in missing.err
    review = tmp_path / "review.txt"
    review.write_bytes(b"\xff\xfe\x00bad")
    assert "cannot be read as UTF-8" in axiograd("explain", f"hf:{folder}", review).err
    review.write_text("a film")
    assert "has no tokenizer" in axiograd("explain", "xmlp", review).err
    assert "no config.json in it" in axiograd("explain", f"hf:{tmp_path}", review).err
    two = axiograd("explain", f"hf:{folder}", review, "--method", "saliency,gradient")
    assert "one method at a time" in two.err


def test_a_row_without_a_text_is_left_out_and_named(folder, tmp_path):
    (tmp_path / "r.csv").write_text("id,review\n1,a film\n2,\n3,   \n")
    done = axiograd(
        "explain",
        f"hf:{folder}",
        tmp_path / "r.csv",
        "--column",
        "review",
        "-m",
        "gradient",
        "-o",
        tmp_path / "o",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["skipped"] == ["r.csv:3", "r.csv:4"]
    assert [one["name"] for one in done.json["texts"]] == ["r.csv:2"]
    (tmp_path / "e.txt").write_text(" \n")
    assert "there is no text in it" in axiograd("explain", f"hf:{folder}", tmp_path / "e.txt", "-o", tmp_path / "o").err


def test_nobody_elses_progress_bars(folder, tmp_path, capfd):
    (tmp_path / "review.txt").write_text("A film.")
    done = axiograd("explain", f"hf:{folder}", tmp_path / "review.txt", "--out", tmp_path / "out")
    assert "Loading weights" not in done.err + capfd.readouterr().err
