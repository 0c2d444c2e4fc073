"""On Ray: the files of one process, row for row; Ray's own readers; workers that are killed."""

import logging
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import axiograd
from axiograd.datasets import PIXELS
from axiograd.errors import StorageError
from axiograd.scale import Attribute, Listed, Windows, write_attributions
from support.scale import source, write

pq = pytest.importorskip("pyarrow.parquet")
ray = pytest.importorskip("ray")


pytestmark = pytest.mark.filterwarnings("default")  # Ray's own warnings are not ours to fix


@pytest.fixture(scope="module")
def cluster():
    """Two workers on this machine, for all tests of this file."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), before])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()
    os.environ["PYTHONPATH"] = before


@pytest.mark.long
def test_rays_workers_write_the_same_rows(tmp_path, cluster):
    samples = source(broken=(3,))
    ray.data.range(1).take_all()  # Ray Data sets up its own logging once
    levels = {name: logging.getLogger(name).level for name in ("ray", "ray.data")}
    write(tmp_path / "plain", samples)
    write(tmp_path / "ray", samples, workers=2)
    assert {name: logging.getLogger(name).level for name in levels} == levels
    a, b = (pq.read_table(tmp_path / name) for name in ("plain", "ray"))
    assert a.schema.equals(b.schema, check_metadata=True)
    assert a.drop_columns(["windows"]).to_pylist()[3]["error"] == b.to_pylist()[3]["error"]
    for name in ("row", "name", "label", "target", "prediction", "error", "grid"):
        assert a[name].equals(b[name])
    good = a["error"].is_null()
    for name in ("score", "total", "difference", "gini"):
        np.testing.assert_allclose(a.filter(good)[name].to_numpy(), b.filter(good)[name].to_numpy(), rtol=1e-5)
    windows = [np.stack(table.filter(good)["windows"].to_pylist()) for table in (a, b)]
    np.testing.assert_allclose(*windows, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_an_error_of_a_worker_is_ours(tmp_path, cluster):
    with pytest.raises(StorageError, match="disk quota"):
        write(tmp_path / "rows", Failing(**vars(source())), workers=1)
    assert len(pq.read_table(tmp_path / "rows")) >= 8


class Failing(Listed):
    """Its third part cannot be written."""

    def read(self, places):
        if places[0] in range(16, 24):
            raise StorageError("disk quota exceeded.")
        return super().read(places)


@pytest.mark.long
def test_rays_readers(tmp_path, cluster):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (6, 12, 12, 3), generator=generator, dtype=torch.uint8).numpy()
    (tmp_path / "images").mkdir()
    for i, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / "images" / f"{i}.png")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(432, 3, bias=False))
    inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    expected = axiograd.XGradient(model).attribute(inputs, model(inputs).argmax(1)).sum((1, 2, 3))

    def totals(data, **how):
        options = {"summary": Windows(4), **how}
        done = data.map_batches(
            Attribute,
            fn_constructor_args=[model],
            fn_constructor_kwargs=options,
            batch_size=4,
            compute=ray.data.ActorPoolStrategy(size=1),
            num_cpus=1,
        )
        rows = done.take_all()
        assert all(row["error"] is None for row in rows)
        return sorted(row["total"] for row in rows)

    wanted = sorted(expected.tolist())
    images = ray.data.read_images(str(tmp_path / "images"), include_paths=True)
    np.testing.assert_allclose(totals(images, preprocess=PIXELS), wanted, rtol=1e-4, atol=1e-5)
    np.save(tmp_path / "rows.npy", inputs.numpy())
    np.testing.assert_allclose(
        totals(ray.data.read_numpy(str(tmp_path / "rows.npy")), column="data"), wanted, rtol=1e-4
    )
    import pyarrow as pa

    files = [path.read_bytes() for path in sorted((tmp_path / "images").iterdir())]
    pq.write_table(pa.table({"image": files, "id": list(range(6))}), tmp_path / "images.parquet")
    parquet = ray.data.read_parquet(str(tmp_path / "images.parquet"))
    np.testing.assert_allclose(totals(parquet, preprocess=PIXELS), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trial", [1, *(pytest.param(i, marks=pytest.mark.long) for i in (0, 2, 3))])
def test_a_worker_killed_at_any_moment_changes_no_row(tmp_path, cluster, trial):
    write(tmp_path / "plain", source(120))
    killed: list[int] = []

    def kill():
        deadline = time.monotonic() + 60
        time.sleep(trial)
        while not killed and time.monotonic() < deadline:
            for process in Path("/proc").iterdir():
                if not process.name.isdigit():
                    continue
                try:
                    name = (process / "cmdline").read_bytes()
                    parent = int((process / "status").read_text().split("PPid:")[1].split()[0])
                except (OSError, IndexError):
                    continue
                if b"MapWorker" in name and _of_ours(parent):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(int(process.name))
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    write(tmp_path / "ray", SlowSource(**vars(source(120))), workers=2)
    thread.join()
    assert killed
    a, b = (pq.read_table(tmp_path / name) for name in ("plain", "ray"))
    assert b["row"].to_pylist() == list(range(120))
    assert a["prediction"].equals(b["prediction"])
    np.testing.assert_allclose(a["total"].to_numpy(), b["total"].to_numpy(), rtol=1e-4, atol=1e-6)


class SlowSource(Listed):
    """Reads take a while, so that there is a moment to be killed at."""

    def read(self, places):
        time.sleep(0.1)
        return super().read(places)


def _of_ours(parent: int) -> bool:
    """Whether a process descends from the one that this test started."""
    while parent > 1:
        if parent == os.getpid():
            return True
        try:
            parent = int(Path(f"/proc/{parent}/status").read_text().split("PPid:")[1].split()[0])
        except (OSError, IndexError):
            return False
    return False


@pytest.mark.long
def test_a_worker_that_makes_another_model_writes_nothing(tmp_path, cluster):
    attribute = Attribute(unseeded)
    with pytest.raises(StorageError, match=r"sha256 .* seed what is random in the function"):
        write_attributions(attribute, source(), tmp_path / "rows", workers=1)
    assert not list((tmp_path / "rows").glob("*.parquet"))


def unseeded():
    torch.seed()
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(288, 2, bias=False))
