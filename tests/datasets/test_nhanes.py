"""NHANES I: the reconstructed file, and the authors' where it is given."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from axiograd.datasets import nhanes
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError, StorageError


def test_reconstructed_nhanes():
    try:
        data = nhanes(source="reconstructed")
    except DataMissingError as error:
        pytest.skip(str(error))
    assert data.name == "reconstructed NHANES I"
    assert data.inputs.shape == (13_315, 106)
    assert len(data.names) == 106
    assert data.names[:2] == ("sex_isFemale", "age")
    assert set(data.targets.tolist()) == {0.0, 1.0}
    assert data.inputs.isnan().any()
    assert not data.inputs.isnan().all(0).any()
    # The paper's own labels, subject by subject.
    folder = Path(os.environ["AXIOGRAD_DATA"]) / "nhanes"
    with (folder / "y_sparsity_seqn_alignment.csv").open() as file:
        papers = {int(row["seqn"]): float(row["y"]) for row in csv.DictReader(file)}
    with gzip.open(folder / "nhanes_reconstructed.csv.gz", "rt") as file:
        subjects = [int(row["seqn"]) for row in csv.DictReader(file)]
    assert [papers[subject] for subject in subjects] == data.targets.tolist()


@pytest.fixture
def authors(tmp_path, monkeypatch):
    """A file of the authors' form."""
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "nhanes"
    folder.mkdir()
    (folder / "X_sparsity.csv").write_text(",age,bmi,isBlank\n0,39.0,,False\n7,61.5,27.5,True\n")
    np.save(folder / "y_sparsity.npy", np.array([1, 0]))
    return folder


def test_the_authors_file_is_preferred(authors):
    with gzip.open(authors / "nhanes_reconstructed.csv.gz", "wt") as file:
        file.write("seqn,y_survived15,age\n1,1,39\n")
    data = nhanes(authors.parent)
    assert data.name == "NHANES I"
    assert data.names == ("age", "bmi", "isBlank")
    expected = torch.tensor([[39, torch.nan, 0], [61.5, 27.5, 1]], dtype=torch.double)
    torch.testing.assert_close(data.inputs, expected, equal_nan=True)
    assert data.targets.tolist() == [1, 0]
    assert nhanes(authors.parent, source="reconstructed").name == "reconstructed NHANES I"


def test_damage_is_reported_with_path_and_column(tmp_path):
    folder = tmp_path / "nhanes"
    folder.mkdir()
    path = folder / "nhanes_reconstructed.csv.gz"
    path.write_bytes(gzip.compress(b"seqn,y_survived15,age\n1,1,39\n2,0,old\n"))
    with pytest.raises(AxiogradError, match=r"csv.gz: column 'age' holds 'old'"):
        nhanes(tmp_path, source="reconstructed")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(StorageError, match="cannot be read"):
        nhanes(tmp_path, source="reconstructed")


def test_sources_are_named():
    with pytest.raises(ConfigurationError, match="'authors', 'reconstructed'"):
        nhanes(source="theirs")
