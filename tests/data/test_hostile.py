"""Files that somebody made to do harm, or that a disk damaged: an error of ours, no crash, and little memory."""

import gzip
import io
import os
import pickle
import random
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from ldmnet.data import read_cifar_batch, read_idx, read_samples, read_svhn_mat, readers
from ldmnet.data.readers import npz_arrays, read_images, readable_images
from ldmnet.errors import DataError
from ldmnet.matching.table import read_npz_arrays

UNPACKED = 300 * 2**20  # bytes that the traps below become
LITTLE = 64 * 2**20  # bytes that may be taken to find that out, where nothing has to be unpacked for it


@pytest.fixture
def taken():
    """How many bytes a test has taken at most so far."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


# ---- CIFAR-10's pickles


class Reduced:
    """Pickled as a call, with a state for what it returns."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


def batch_of(kind, state, shape=(1, 3072), content=bytes(3072)):
    dtype = Reduced(np.dtype, (kind, False, True), state)
    reconstruct = np.zeros(1).__reduce__()[0]
    data = Reduced(reconstruct, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, content))
    return pickle.dumps({"data": data, "labels": [1]}, 4)


@pytest.mark.parametrize(
    "content",
    [
        batch_of("V8", (3, "|", None, ("a",), {}, 8, 1, 0x3F), (1,), b"12345678"),  # ended NumPy by a signal
        batch_of("O", (3, "|", None, None, None, -1, -1, 0x3F), (1,), ["text"]),
        batch_of("u1", (3, "|", None, None, None, -1, -1, 0), (1, 3072), bytes(3071)),
        batch_of("u1", (3, "|", None, None, None, -1, -1, 0), (-1, -3072)),
        batch_of("u1", (3, "|", None, None, None, -1, -1, 0), (10**30, 10**30)),
        b"\x80\x04}r\xff\xff\xff\x7f.",  # place 2^31 - 1 of the memo, which Python's unpickler makes room for
        b"\x80\x04\x8e\xff\xff\xff\xff\x0f\x00\x00\x00.",  # bytes, said to be 64 GB
        b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b"}\x85R.",
        b"\x80\x04)" + b"\x85" * 200_000 + b"K\x01}(" + b"h\x00K\x01u.",
        b"\x80\x04]\x94h\x00a}\x8c\x06labelsh\x00s.",  # a list in itself
        b"\x80\x02c__builtin__\neval\n(S'1'\ntR.",
        b"\x80\x02}\x85\x81.",
        b".",
        b"",
    ],
)
def test_a_pickle_that_would_do_harm(tmp_path, content, taken):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_cifar_batch(path)
    assert taken() < LITTLE


@pytest.mark.slow
def test_flipped_bits_and_cuts_of_a_batch_end_with_a_sentence_or_pixels(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
    damage(tmp_path / "data_batch_1", pickle.dumps({"data": data, "labels": [1, 2]}, 2), read_cifar_batch, 300)


def damage(path, whole, reader, times):
    """Read copies with a flipped bit within the first or last bytes, and cut ones: only our own error may come."""
    draw = random.Random(0)
    for _ in range(times):
        content = bytearray(whole)
        place = draw.choice([draw.randrange(min(400, len(whole))), -1 - draw.randrange(min(200, len(whole)))])
        content[place] ^= 1 << draw.randrange(8)
        path.write_bytes(content if draw.random() < 0.8 else content[: draw.randrange(len(content))])
        try:
            reader(path)
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017


# ---- .mat


def mat(arrays, **options):
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, arrays, **options)
    return file.getvalue()


SVHN = {"X": np.arange(32 * 32 * 3 * 2).astype(np.uint8).reshape(32, 32, 3, 2), "y": np.array([[10], [1]], np.uint8)}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float64])
def test_mat_files_in_the_forms_they_come_in(tmp_path, compressed, kind):
    path = tmp_path / "train_32x32.mat"
    more = {"other": np.arange(3.0), "words": "text", "cells": np.array([1, "a"], object)}
    path.write_bytes(mat({**more, **SVHN, "y": SVHN["y"].astype(np.uint8)}, do_compression=compressed))
    x, y = read_svhn_mat(path)
    np.testing.assert_array_equal(x, SVHN["X"].transpose(3, 2, 0, 1))
    assert y.tolist() == [0, 1]
    path.write_bytes(mat({**SVHN, "y": SVHN["y"].astype(kind)}, do_compression=compressed))
    if kind is np.float64:
        with pytest.raises(DataError, match=re.escape(f"{path}: the labels must be whole numbers, got float64.") + "$"):
            read_svhn_mat(path)
    else:
        assert read_svhn_mat(path)[1].tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_every_flipped_bit_in_the_headers_of_a_mat_file(tmp_path, compressed):
    whole, path = mat(SVHN, do_compression=compressed), tmp_path / "train_32x32.mat"
    inner = 128 if compressed else 128 + 64  # the file's header, and an array's tags
    for place in range(116, inner):
        for bit in range(8):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            try:
                read_svhn_mat(path)
            except DataError as error:
                assert str(path) in str(error)  # noqa: PT017
    damage(path, whole, read_svhn_mat, 300)


@pytest.mark.slow
def test_a_mat_file_that_becomes_too_large(tmp_path):
    path = tmp_path / "train_32x32.mat"
    packed = zlib.compress(bytes(UNPACKED), 9)
    path.write_bytes(mat({})[:128] + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(DataError, match=r"is not a \.mat file of SVHN: an array takes more than 268,435,456 bytes"):
        read_svhn_mat(path)


# ---- gzip


@pytest.mark.slow
def test_a_gzip_file_that_becomes_too_large(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(UNPACKED), 9))
    size = f"{path.stat().st_size:,} bytes" if path.stat().st_size < 10**6 else "0.3 MB"
    words = f"{path} of {size} becomes more than 268.4 MB when it is decompressed. If you trust it, decompress it "
    with pytest.raises(DataError, match=re.escape(f"{words}yourself (gunzip).") + "$"):
        read_idx(path)


# ---- .npz


@pytest.mark.slow
@pytest.mark.parametrize("reader", [npz_arrays, lambda path: read_npz_arrays(path, ("x",))])
def test_an_npz_file_that_becomes_too_large_is_refused_before_it_is_unpacked(tmp_path, reader, taken):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("x.npy", "w") as member:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (1, UNPACKED)})
        member.write(header.getvalue())
        for _ in range(UNPACKED // 2**20):
            member.write(bytes(2**20))
    with pytest.raises(DataError, match=r"becomes 314\.6 MB when it is decompressed|or is damaged"):
        reader(path)
    assert taken() < LITTLE


@pytest.mark.parametrize("shape", [(10**30,), (-1, -8), (2, 2), (8, 10**12), ("a",), (True, 8)])
def test_an_npz_file_whose_header_lies(tmp_path, shape, taken):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64))
        if shape != (True, 8):
            file.writestr("y.npy", b"nothing")
    with pytest.raises(DataError):
        npz_arrays(path)
    assert taken() < LITTLE


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [True, False])
def test_flipped_bits_and_cuts_of_an_npz_file(tmp_path, labelled):
    arrays = {"x": np.arange(12.0).reshape(4, 3)} | ({"y": np.arange(4)} if labelled else {})
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, **arrays)
        path = tmp_path / "a.npz"
        damage(path, file.getvalue(), lambda path: npz_arrays(path, labelled=labelled), 300)


def test_what_numpy_writes_comes_back(tmp_path):
    for x in (
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6).reshape(3, 2).astype(">i2"),
    ):
        np.savez(tmp_path / "a.npz", x=x, y=np.array(["a", "b", "ç"])[: len(x)])
        out, y = npz_arrays(tmp_path / "a.npz")
        np.testing.assert_array_equal(out, x)
        assert y.tolist() == ["a", "b", "ç"][: len(x)]


# ---- images


@pytest.fixture
def image():
    return pytest.importorskip("PIL.Image", reason="images need Pillow")


def photos(image, path):
    for name in "ab":
        (path / name).mkdir(parents=True)
        image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path / name / "0.png")
    return path


def test_an_eps_file_with_another_name_does_not_reach_the_program_that_draws_it(image, tmp_path, monkeypatch):
    plugin = pytest.importorskip("PIL.EpsImagePlugin")
    monkeypatch.setattr(plugin, "Ghostscript", lambda *args: pytest.fail("Ghostscript was called"))
    file = tmp_path / "x.png"
    image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file, format="EPS")
    assert readable_images([file], None, False)[1] == {file: "not an image"}


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes with names on Windows")
def test_a_pipe_with_an_images_name_is_left_out(image, tmp_path):
    os.mkfifo(pipe := photos(image, tmp_path) / "a" / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png \(cannot be read: it is not a regular file\)"):
        read_images([pipe], None, grey=False)


def test_an_image_of_too_many_pixels_is_left_out_before_it_is_read(image, tmp_path, taken):
    file = tmp_path / "vast.png"
    header = b"IHDR" + struct.pack(">IIBBBBB", 12_000, 10_000, 8, 0, 0, 0, 0)
    parts = [header, b"IDAT" + zlib.compress(bytes(10_001 * 100)), b"IEND"]
    chunks = b"".join(struct.pack(">I", len(p) - 4) + p + struct.pack(">I", zlib.crc32(p)) for p in parts)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    fault = "its 12,000 x 10,000 pixels are more than 67,108,864"
    assert readable_images([file], (4, 4), True)[1] == {file: fault}
    assert taken() < LITTLE


def test_images_that_do_not_fit_into_memory_together(image, tmp_path, monkeypatch):
    photos(image, tmp_path)
    monkeypatch.setattr(readers, "memory", lambda: 200)
    with pytest.raises(
        DataError, match=r"^the images take more than 50 bytes .* number 2 of 2\. Give one smaller size"
    ):
        read_samples(tmp_path)
