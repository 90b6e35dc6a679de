"""Readers: what official files hold comes back, and what is wrong is said in words."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ldmnet.data import read_cifar_batch, read_idx, read_samples, read_svhn_mat
from ldmnet.data.csvtables import read_table, read_table_like
from ldmnet.data.readers import images_by_class, npz_arrays, read_images
from ldmnet.errors import DataError, InputError, MissingExtraError

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}

NO_NUMBER = "is not a finite number. Fill empty cells, turn words into columns of 0 and 1, or leave the column out."


def idx_bytes(array: np.ndarray) -> bytes:
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(f">2x2B{array.ndim}I", code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


# ---- idx


@settings(max_examples=40, deadline=None)
@given(
    array=st.sampled_from(sorted(CODES)).flatmap(
        lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
    ),
    zipped=st.booleans(),
)
def test_idx_brings_back_every_type_and_shape_raw_or_gzipped(tmp_path_factory, array, zipped):
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    out = read_idx(path)
    np.testing.assert_array_equal(out, array)
    assert out.dtype == array.dtype
    assert out.dtype.isnative
    assert out.flags.writeable


@pytest.mark.parametrize("shape", [(0, *[2**32 - 1] * 3), (0,) * 100], ids=["too large", "too many"])
def test_idx_of_no_values_in_a_shape_that_cannot_be_is_refused(tmp_path, shape):
    path = tmp_path / "file"
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + b"".join(d.to_bytes(4, "big") for d in shape))
    with pytest.raises(DataError, match="no array has that shape"):
        read_idx(path)


def test_idx_cut_short_says_how_much_there_should_be(tmp_path):
    path = tmp_path / "train-images"
    path.write_bytes(idx_bytes(np.zeros((100, 28, 28), np.uint8))[:-1])
    with pytest.raises(
        DataError,
        match=says(
            f"{path} is cut short: its header promises 100 x 28 x 28 values, 78,416 bytes in all, but it "
            "holds 78,415. Get the file again."
        ),
    ):
        read_idx(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not an idx file: it begins with nothing."),
        (b"PK\3\4more", "is not an idx file: it begins with 50 4b 03 04."),
        (b"\0\0\x07\1\0\0\0\0", "is not an idx file: it begins with 00 00 07 01."),
        (b"\0\0\x08\3\0\0", "is cut short within its header of 16 bytes. Get the file again."),
        (
            idx_bytes(np.zeros(3, np.uint8)) + b"!",
            "is too long: its header promises 3 values, 11 bytes in all, but it holds 12. Get the file again.",
        ),
        (
            gzip.compress(idx_bytes(np.arange(99, dtype=np.uint8)))[:-20],
            "is a damaged gzip file: Compressed file ended before the end-of-stream marker was reached. "
            "Get the file again.",
        ),
    ],
)
def test_idx_refuses_what_is_not_idx(tmp_path, content, words):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says(f"{path} {words}")):
        read_idx(path)


@pytest.mark.parametrize("reader", [read_idx, read_cifar_batch, read_svhn_mat, npz_arrays, read_table])
def test_a_missing_file_is_named(tmp_path, reader):
    path = tmp_path / "nowhere"
    with pytest.raises(DataError, match=says(f"{path} cannot be read: No such file or directory.")):
        reader(path)


# ---- CIFAR-10


def cifar_batch(n: int = 4) -> dict[str, object]:
    data = np.random.default_rng(0).integers(0, 256, (n, 3072), np.uint8)
    return {"data": data, "labels": [i % 10 for i in range(n)], "batch_label": "tiny"}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_cifar_keys_may_be_text_or_bytes_in_any_protocol(tmp_path, protocol, as_bytes):
    batch = cifar_batch()
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({k.encode() if as_bytes else k: v for k, v in batch.items()}, protocol))
    x, y = read_cifar_batch(path)
    np.testing.assert_array_equal(x.reshape(4, -1), batch["data"])  # red, green, blue planes, row by row
    assert x.shape == (4, 3, 32, 32)
    assert x.flags.writeable
    assert y.tolist() == [0, 1, 2, 3]
    assert y.dtype == np.int64


class Malice:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (os.mkdir, f"{os.mkdir.__module__}.mkdir"),
        (eval, "builtins.eval"),
        (getattr, "builtins.getattr"),
        (np.load, "numpy.load"),
    ],
)
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path, function, named):
    path, victim = tmp_path / "data_batch_1", tmp_path / "victim"
    path.write_bytes(pickle.dumps({"data": Malice(function, str(victim)), "labels": []}))
    with pytest.raises(
        DataError,
        match=says(
            f"{path} asks for {named}, which no CIFAR-10 batch needs: it was not run. "
            "Get the file from https://www.cs.toronto.edu/~kriz/cifar.html."
        ),
    ):
        read_cifar_batch(path)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"labels": [1]}, "is not a CIFAR-10 batch: it needs the entries data and labels, and has labels."),
        ([1, 2], "is not a CIFAR-10 batch: it needs the entries data and labels, and has none."),
        (
            {"data": np.zeros((2, 5), np.uint8), "labels": [1, 2]},
            ": data must be uint8 of shape (n, 3072), got uint8 (2, 5).",
        ),
        ({**cifar_batch(2), "labels": [1]}, ": there are 2 samples but the labels have shape (1,)."),
        ({**cifar_batch(2), "labels": [1, 10]}, ": the labels must be 0 to 9, got 1 to 10."),
        ({**cifar_batch(2), "labels": [1.0, 2.5]}, ": the labels must be whole numbers, got float64."),
    ],
)
def test_cifar_says_what_does_not_fit(tmp_path, batch, words):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=says(f"{path}{'' if words[0] == ':' else ' '}{words}")):
        read_cifar_batch(path)


def test_a_cut_pickle_is_not_a_batch(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(cifar_batch())[:-100])
    with pytest.raises(DataError, match=re.escape(f"{path} is not a CIFAR-10 batch: ")):
        read_cifar_batch(path)


# ---- SVHN


def test_svhn_axes_are_turned_and_ten_is_zero(tmp_path):
    from scipy.io import savemat

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 3), np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": pixels, "y": np.array([[10], [1], [9]], np.uint8)})
    x, y = read_svhn_mat(tmp_path / "train_32x32.mat")
    assert y.tolist() == [0, 1, 9]
    assert x.shape == (3, 3, 32, 32)
    assert x[2, 1, 5, 7] == pixels[5, 7, 1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"X": np.zeros((32, 32, 3, 1), np.uint8)},
            " is not a .mat file of SVHN: it lacks X or y, the pixels and the labels.",
        ),
        (
            {"X": np.zeros((3, 32, 32, 2), np.uint8), "y": np.ones((2, 1), np.uint8)},
            ": X must be uint8 of shape (32, 32, 3, n), got uint8 (3, 32, 32, 2).",
        ),
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [11]], np.uint8)},
            ": the labels must be 0 to 10, got 1 to 11.",
        ),
    ],
)
def test_svhn_says_what_does_not_fit(tmp_path, content, words):
    from scipy.io import savemat

    path = tmp_path / "train_32x32.mat"
    savemat(path, content)
    with pytest.raises(DataError, match=says(f"{path}{words}")):
        read_svhn_mat(path)


def test_text_is_not_a_mat_file(tmp_path):
    path = tmp_path / "train_32x32.mat"
    path.write_text("<html>not found</html>" * 20)
    with pytest.raises(DataError, match=re.escape(f"{path} is not a .mat file of SVHN: ")):
        read_svhn_mat(path)


# ---- npz


def test_npz_brings_back_x_and_y(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "a.npz", x=x, y=np.array([2, 0, 1], np.uint8))
    samples = read_samples(tmp_path / "a.npz")
    np.testing.assert_array_equal(samples.x.numpy(), x)
    assert samples.labels.tolist() == [2, 0, 1]
    assert samples.labels.dtype == torch.int64


ADVICE = "Save it with np.savez(path, x=x, y=y)."


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x": np.zeros((2, 2)), "subject": np.zeros(2)},
            f" needs the arrays x and y, and has x, subject. {ADVICE}",
        ),
        (
            {"x": np.zeros((2, 2)), "y": np.zeros(3, int)},
            ": there are 2 samples but the labels have shape (3,).",
        ),
        ({"x": np.zeros((2, 2)), "y": np.array([0, -1])}, ": the labels must be 0 or above, got -1 to 0."),
        (
            {"x": np.zeros(2), "y": np.zeros(2, int)},
            ": x must be numbers of shape (n, ...), got float64 (2,).",
        ),
        (
            {"x": np.array([[Malice(os.getcwd)]], object), "y": np.zeros(1, int)},
            ": x holds Python objects, which could be code and are not loaded.",
        ),
    ],
)
def test_npz_says_what_does_not_fit(tmp_path, arrays, words):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=says(f"{path}{words}")):
        read_samples(path)


@pytest.mark.parametrize("content", [b"", b"plain text", pickle.dumps([1])])
def test_other_files_are_not_npz(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says(f"{path} is not an .npz file of plain numbers, or is damaged. {ADVICE}")):
        npz_arrays(path)


# ---- CSV


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "x", "y", "names"),
    [
        ("a,b,label\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], ["0", "1"]),
        ("1,2,7\n3,4,5\n", [[1, 2], [3, 4]], [1, 0], ["5", "7"]),  # no header, the last column
        ("1;2;cat\n3;4;ant\n", [[1, 2], [3, 4]], [1, 0], ["ant", "cat"]),  # no header, names of classes
        ("Class\ta\tb\nv\t1\t2\n\nu\t3\t4\n", [[1, 2], [3, 4]], [1, 0], ["u", "v"]),
        ("x,y,label\n1,2,1\n3,4,2.0\n", [[1, 2], [3, 4]], [0, 1], ["1", "2.0"]),  # label goes before y
        ("a,b,label\n1,2,007\n3,4,8\n", [[1, 2], [3, 4]], [0, 1], ["007", "8"]),  # labels are text
        (
            "a,b,label\n1,2,9007199254740993\n3,4,9007199254740992\n",
            [[1, 2], [3, 4]],
            [1, 0],
            ["9007199254740992", "9007199254740993"],  # which a float cannot tell apart
        ),
        (f"a,b,label\n1,2,{'9' * 5000}\n3,4,8\n", [[1, 2], [3, 4]], [1, 0], ["8", "9" * 5000]),
        ("a,b,label\r1,2,u\r3,4,v\r", [[1, 2], [3, 4]], [0, 1], ["u", "v"]),  # as old Macs end lines
        ('a,b,label\n1,2,"u\nv"\n\n3,4,"u\n\nw"\n', [[1, 2], [3, 4]], [1, 0], ["u\n\nw", "u\nv"]),
        ('a,b,label\r\n1,2,"u\r\nv"\r\n3,"4",w\r\n', [[1, 2], [3, 4]], [0, 1], ["u\r\nv", "w"]),
        ('"a\nb",b,label\n1,2,5" pipe\n3,4,6" pipe\n', [[1, 2], [3, 4]], [0, 1], ['5" pipe', '6" pipe']),
        (
            "0,1,target\r\n1,2,10\r\n3,4,9\r\n",
            [[1, 2], [3, 4]],
            [1, 0],
            ["9", "10"],
        ),  # by value, not by letter
        ('\ufeffa,b,c\n1,2,"x, y"\n3,4,"z"\n', [[1, 2], [3, 4]], [0, 1], ["x, y", "z"]),
    ],
)
def test_csv_finds_the_labels(tmp_path, text, x, y, names):
    read = read_table(table(tmp_path, text))
    out, labels, class_names = read.x, read.y, read.class_names
    assert out.tolist() == x
    assert out.dtype == torch.float64
    assert labels.tolist() == y
    assert labels.dtype == torch.int64
    assert class_names == names


def test_csv_without_a_header_whose_classes_are_called_as_label_columns_are(tmp_path):
    read = read_table(table(tmp_path, "1,2,y\n3,4,n\n5,6,y\n7,8,n\n"))
    x, y, names = read.x, read.y, read.class_names
    assert (len(x), y.tolist(), names) == (4, [1, 0, 1, 0], ["n", "y"])


def test_csv_with_the_row_numbers_of_pandas_is_refused(tmp_path):
    path = table(tmp_path, ",width,species\n0,1.5,a\n1,2.5,a\n2,1.7,b\n")
    words = (
        "column 1 has no name, as that of pandas' row numbers. Save the table without it (index=False), or give it a"
    )
    with pytest.raises(DataError, match=says(f"{path}: {words} name.")):
        read_table(path)


def test_csv_with_numbers_for_names_is_not_guessed_at(tmp_path):
    path = table(tmp_path, "0,1,species\n1,2,u\n3,4,v\n5,6,u\n7,8,v\n")
    with pytest.raises(DataError, match="'species' ends the first row and no other"):
        read_table(path)
    read = read_table(path, label="species")
    x, names = read.x, read.class_names
    assert (len(x), names) == (4, ["u", "v"])


def test_csv_with_a_name_for_two_columns_is_refused(tmp_path):
    path = table(tmp_path, "a,b,a,label\n1,2,3,u\n4,5,6,v\n")
    with pytest.raises(DataError, match=says(f"{path} has two columns called a. Give each a name of its own.")):
        read_table(path)
    with pytest.raises(DataError, match=says(f"{path} has two columns called a. Give each a name of its own.")):
        read_table_like(path, "label", 2, ["a", "b"])
    assert read_table_like(path, "label", 1, ["b"]).x.tolist() == [[2], [5]]  # the others are ignored


def test_csv_whose_labels_are_all_empty_is_to_be_predicted(tmp_path):
    path = table(tmp_path, "a,b,label\n1,2,\n4,5,\n")
    read = read_table_like(path, "label", 2, ["a", "b"])
    assert (read.x.tolist(), read.y, read.notes) == ([[1, 2], [4, 5]], None, ())
    with pytest.raises(DataError, match=says(f"{path} has rows without a label.")):
        read_table_like(table(tmp_path, "a,b,label\n1,2,\n4,5,u\n"), "label", 2, ["a", "b"])


@pytest.mark.parametrize("start", [0, 1])
def test_csv_whose_columns_pandas_numbered_is_refused(tmp_path, start):
    numbers = ",".join(str(start + i) for i in range(4))
    path = table(tmp_path, f"{numbers}\n1.5,2.5,3.5,0\n2.5,1.5,0.5,1\n")
    words = f"{path}: the first row is {start}, {start + 1}, {start + 2} and so on, as pandas numbers columns"
    with pytest.raises(DataError, match=f"^{re.escape(words)}"):
        read_table(path)
    with pytest.raises(DataError, match=f"^{re.escape(words)}"):
        read_table_like(path, None, 4, None)
    few = table(tmp_path, "0,1,2\n1.5,2.5,0\n2.5,1.5,1\n")  # three may be a sample
    assert len(read_table(few).x) == 3


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("007", "7"), ("-0", "0")])
def test_csv_with_a_label_written_in_two_ways_is_refused(tmp_path, one, other):
    path = table(tmp_path, f"a,label\n1,{one}\n2,{other}\n3,2\n")
    words = f"{path}: the labels {one} and {other} are one number. Write it in one way."
    with pytest.raises(DataError, match=says(words)):
        read_table(path)


def test_csv_takes_the_column_that_is_named(tmp_path):
    path = table(tmp_path, "kind,a,label\nu,1,2\nv,3,4\n")
    read = read_table(path, label="kind")
    x, y, names = read.x, read.y, read.class_names
    assert (x.tolist(), y.tolist(), names) == ([[1, 2], [3, 4]], [0, 1], ["u", "v"])
    with pytest.raises(InputError, match=says(f"label is 'sort' but {path} has the columns kind, a, label.")):
        read_table(path, label="sort")
    with pytest.raises(InputError, match=says(f"label is 'sort' but {path} has no header.")):
        read_table(table(tmp_path, "1,2\n"), label="sort")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", " is empty."),
        ("a,label\n", " needs a column of labels, one or more of numbers, and at least one row of them."),
        ("1\n2\n", " needs a column of labels, one or more of numbers, and at least one row of them."),
        ("a,b,label\n1,2,0\n3,x,1\n", f", row 2: 'x' in column b {NO_NUMBER}"),
        ("a,b,label\n1,2,0\n\n3,,1\n", f", row 2: '' in column b {NO_NUMBER}"),
        ("1,2,0\n3,nan,1\n", f", row 2: 'nan' in column 2 {NO_NUMBER}"),
        ("1,2,0\n3,1\n", ", row 2: 2 cells where there should be 3."),
        ("a,b,label\n1,2,0,9\n", ", row 1: 4 cells where there should be 3."),
        ("a,label\n1,u\n2,\n", " has rows without a label."),
        ("a,label\n1,2\n2,0.5\n", ": the labels must be whole numbers or names of classes, got 0.5."),
    ],
)
def test_csv_says_where_it_is_wrong(tmp_path, text, words):
    path = table(tmp_path, text)
    with pytest.raises(DataError, match=says(f"{path}{words}")):
        read_table(path)


def test_csv_says_which_row_is_wrong_after_a_cell_of_two_lines(tmp_path):
    path = table(tmp_path, 'a,b,label\n1,2,"u\nv"\n3,x,w\n')
    with pytest.raises(DataError, match=says(f"{path}, row 2: 'x' in column b {NO_NUMBER}")):
        read_table(path)


def test_csv_with_a_cell_that_is_too_long(tmp_path):
    path = table(tmp_path, f"a,label\n1,{'u' * 200_000}\n2,v\n")
    try:
        assert len(read_table(path).class_names) == 2
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
    with pytest.raises(DataError, match="is not a table: field larger than field limit"):
        read_table(table(tmp_path, f"{'a' * 200_000},label\n1,u\n"))


def test_a_wide_table_takes_time_in_proportion(tmp_path):
    names, times = [f"c{i}" for i in range(40_000)], []
    for width in (10_000, 40_000):
        rows = [",".join([*names[:width], "extra", "label"]), *(",".join(["1"] * (width + 1) + [c]) for c in "uv")]
        path = table(tmp_path, "\n".join(rows))
        started = time.perf_counter()
        found = read_table_like(path, "label", width, names[:width][::-1])
        times.append(time.perf_counter() - started)
        assert (found.x.shape, found.notes[0].split(": ")[2]) == ((2, width), "extra")
    assert times[1] < 10 * times[0]  # four times the width; it was sixteen times the time, and seconds


def test_csv_that_is_not_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"1,2\xff\n")
    with pytest.raises(DataError, match=says(f"{path} is not text in UTF-8: invalid start byte at byte 3.")):
        read_table(path)


# ---- folders of images


def save_image(path: Path, array: np.ndarray) -> None:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)


def test_image_folder_sorts_classes_and_files(tmp_path):
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 256, (4, 5, 3), np.uint8) for name in ("b/2.png", "b/1.PNG", "a/0.bmp")}
    for name, array in pixels.items():
        save_image(tmp_path / name, array)
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    samples = read_samples(tmp_path)
    assert samples.class_names == ["a", "b"]
    assert samples.labels.tolist() == [0, 1, 1]
    for image, name in zip(samples.x.numpy(), ("a/0.bmp", "b/1.PNG", "b/2.png"), strict=True):
        np.testing.assert_array_equal(image.transpose(1, 2, 0), pixels[name])


def test_image_folder_grey_and_resized(tmp_path):
    save_image(tmp_path / "a" / "0.png", np.full((8, 6, 3), 90, np.uint8))
    save_image(tmp_path / "b" / "0.png", np.full((3, 3), 40, np.uint8))
    x = read_samples(tmp_path, size=(5, 4), grey=True).x
    assert x.shape == (2, 1, 5, 4)
    assert np.unique(x[0]).tolist() == [90]
    assert np.unique(x[1]).tolist() == [40]
    assert read_samples(tmp_path, size=7).x.shape == (2, 3, 7, 7)


def test_images_that_differ_need_a_size(tmp_path):
    save_image(tmp_path / "a" / "0.png", np.zeros((8, 6), np.uint8))
    save_image(tmp_path / "b" / "0.png", np.zeros((3, 4), np.uint8))
    with pytest.raises(
        DataError,
        match=says(
            f"the images differ in size: {tmp_path / 'a' / '0.png'} is 8 x 6 and "
            f"{tmp_path / 'b' / '0.png'} is 3 x 4. Give one size for all, and they are resized."
        ),
    ):
        read_samples(tmp_path)


def test_unreadable_images_are_named_all_at_once(tmp_path):
    save_image(tmp_path / "a" / "0.png", np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8))
    save_image(tmp_path / "a" / "deep.png", np.zeros((20, 20), np.uint16))
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a" / "text.jpg").write_text("nothing")
    with pytest.raises(DataError, match=r"^unreadable: .*\. Replace or remove them\.$") as caught:
        read_images(sorted((tmp_path / "a").iterdir()), None, grey=False)
    words = str(caught.value)
    assert "cut.png" in words
    assert "text.jpg" in words
    assert "deep.png (its pixels are of mode I;16, not 8 bits)" in words
    assert "0.png" not in words


def test_image_folder_says_how_it_should_look(tmp_path):
    with pytest.raises(DataError, match=says(f"{tmp_path / 'no'} is not a folder.")):
        images_by_class(tmp_path / "no")
    words = f"{tmp_path} has no folders. Put the images in one folder per class: {tmp_path}/<class>/<image>."
    with pytest.raises(DataError, match=says(words)):
        images_by_class(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: no images in empty. Known are .png, .jpg, ")):
        images_by_class(tmp_path)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    save_image(tmp_path / "a" / "0.png", np.zeros((4, 4), np.uint8))
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    words = "Pillow is not installed. Install it with: pip install 'ldmnet[demo]'"
    with pytest.raises(MissingExtraError, match=says(words)):
        read_images([tmp_path / "a" / "0.png"], None, grey=False)
