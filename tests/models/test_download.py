"""Downloads from a server on this machine: progress, resumption, checks, and being without a network."""

import hashlib
import http.server
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, DataMissingError, StorageError
from axiograd.models import fetch_weights, get_model, read_state_dict
from axiograd.models._download import download

CONFIG = {"num_classes": 3, "width": 0.05, "hidden": 8, "pool": 1}
NAME = "xalexnet_model_best.pth.tar"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves one file, with ranges; the first `cuts` answers break off after `piece` bytes."""

    def __init__(self, *args, state, **kwargs):
        self.state = state
        super().__init__(*args, **kwargs)

    def do_GET(self):
        state = self.state
        state["requests"].append((self.path, self.headers.get("Range")))
        if self.path != "/" + NAME:
            self.send_error(404)
            return
        content, start, status = state["content"], 0, 200
        wanted = self.headers.get("Range")
        if wanted and self.headers.get("If-Range") == state["etag"] and state["ranges"]:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(content):
                self.send_error(416)
                return
        body = content[start:]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", state["etag"])
        self.end_headers()
        if state["cuts"] > 0:
            state["cuts"] -= 1
            body = body[: state["piece"]]
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.save({"state_dict": get_model("xalexnet", **CONFIG).state_dict()}, tmp_path / "made.pth")
    content = (tmp_path / "made.pth").read_bytes()
    state = {"content": content, "etag": '"1"', "cuts": 0, "piece": 1000, "ranges": True, "requests": []}
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, state=state))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AXIOGRAD_WEIGHTS_URL", f"http://127.0.0.1:{httpd.server_port}/")
    state["url"] = f"http://127.0.0.1:{httpd.server_port}/{NAME}"
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_download_into_the_cache_and_only_once(server, tmp_path, capsys):
    model = get_model("xalexnet", weights="paper", download=True, **CONFIG)
    target = tmp_path / "cache" / "axiograd" / "weights" / NAME
    assert target.read_bytes() == server["content"]
    assert NAME in capsys.readouterr().out
    again = get_model("xalexnet", weights="paper", download=True, **CONFIG)
    assert len(server["requests"]) == 1
    torch.testing.assert_close(again.classifier[6].weight, model.classifier[6].weight)
    assert [path.name for path in target.parent.iterdir()] == [NAME]


def test_nothing_is_fetched_without_being_asked(server, tmp_path):
    with pytest.raises(DataMissingError) as caught:
        get_model("xalexnet", weights="paper", **CONFIG)
    assert not server["requests"]
    assert server["url"] in str(caught.value)
    assert str(tmp_path / "cache" / "axiograd" / "weights" / NAME) in str(caught.value)


def test_a_broken_transfer_is_resumed_within_the_call(server, tmp_path):
    server["cuts"] = 2
    download(server["url"], tmp_path / NAME, pause=0, progress=False)
    assert (tmp_path / NAME).read_bytes() == server["content"]
    assert [wanted for _, wanted in server["requests"]] == [None, "bytes=1000-", "bytes=2000-"]


def test_a_broken_transfer_is_resumed_by_the_next_call(server, tmp_path):
    server["cuts"] = 1
    with pytest.raises(DataMissingError, match=r"1000 bytes are kept in .*\.part"):
        download(server["url"], tmp_path / NAME, attempts=1, progress=False)
    assert not (tmp_path / NAME).exists()
    download(server["url"], tmp_path / NAME, attempts=1, progress=False)
    assert (tmp_path / NAME).read_bytes() == server["content"]
    assert server["requests"][-1][1] == "bytes=1000-"


@pytest.mark.parametrize("change", ["new version", "no ranges"])
def test_a_half_that_cannot_be_continued_is_fetched_anew(server, tmp_path, change):
    server["cuts"] = 1
    with pytest.raises(DataMissingError):
        download(server["url"], tmp_path / NAME, attempts=1, progress=False)
    if change == "new version":
        server["etag"], server["content"] = '"2"', server["content"][::-1]
    else:
        server["ranges"] = False
    download(server["url"], tmp_path / NAME, attempts=1, progress=False)
    assert (tmp_path / NAME).read_bytes() == server["content"]


def test_a_half_that_was_whole_already_is_fetched_anew(server, tmp_path):
    (tmp_path / f"{NAME}.part").write_bytes(server["content"])
    (tmp_path / f"{NAME}.part.etag").write_text(server["etag"])
    download(server["url"], tmp_path / NAME, pause=0, progress=False)
    assert (tmp_path / NAME).read_bytes() == server["content"]
    assert len(server["requests"]) == 2


def test_the_check_knows_the_kind_of_file(server, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(3.0))
    server["content"] = (tmp_path / "x.npz").read_bytes()
    path = download(server["url"], tmp_path / "y.npz", check=read_state_dict, progress=False)
    assert read_state_dict(path)["x"].tolist() == [0, 1, 2]


def test_checksum(server, tmp_path):
    right = hashlib.sha256(server["content"]).hexdigest()
    download(server["url"], tmp_path / "a", sha256=right, progress=False)
    with pytest.raises(StorageError, match=right):
        download(server["url"], tmp_path / "b", sha256="0" * 64, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a", "made.pth"]


def test_what_is_no_checkpoint_is_not_kept(server, tmp_path):
    server["content"] = b"<html>moved</html>" * 100
    with pytest.raises(StorageError):
        fetch_weights("xalexnet", "paper", progress=False)
    assert not list((tmp_path / "cache" / "axiograd" / "weights").iterdir())


def test_offline_the_error_gives_address_and_target(tmp_path, monkeypatch):
    monkeypatch.delenv("AXIOGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Port 9 of this machine: nobody listens.
    monkeypatch.setenv("AXIOGRAD_WEIGHTS_URL", "http://127.0.0.1:9/models")
    monkeypatch.setattr("axiograd.models._download.time.sleep", lambda _: None)
    with pytest.raises(DataMissingError) as caught:
        get_model("xvgg16", weights="paper", download=True)
    assert "http://127.0.0.1:9/models/xvgg16_model_best.pth.tar" in str(caught.value)
    assert str(tmp_path / "axiograd" / "weights" / "xvgg16_model_best.pth.tar") in str(caught.value)


def test_a_wrong_address_is_not_tried_again(server, tmp_path):
    with pytest.raises(DataMissingError, match="404"):
        download(server["url"] + "x", tmp_path / NAME, progress=False)
    assert len(server["requests"]) == 1


def test_two_at_once_fetch_it_once(server, tmp_path):
    server["piece"], server["cuts"] = 500, 1
    ask = partial(download, server["url"], tmp_path / NAME, pause=0.05, progress=False)
    with ThreadPoolExecutor(4) as pool:
        paths = [future.result() for future in [pool.submit(ask) for _ in range(4)]]
    assert paths == [tmp_path / NAME] * 4
    assert (tmp_path / NAME).read_bytes() == server["content"]
    assert len(server["requests"]) == 2


def test_only_the_web(tmp_path):
    with pytest.raises(ConfigurationError, match="only http"):
        download("file:///etc/passwd", tmp_path / "x")


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/x", "ftp://127.0.0.1/x", "file:///etc/passwd"])
def test_redirects_lead_to_https_only(tmp_path, target):
    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        with pytest.raises((ConfigurationError, DataMissingError), match=r"not https|not allowed"):
            download(f"http://127.0.0.1:{httpd.server_port}/x", tmp_path / "x", progress=False)
        httpd.shutdown()
    assert not (tmp_path / "x").exists()
