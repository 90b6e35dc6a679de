"""Someone's own files in the forms that they come in: endings, orders of axes, kinds of labels, more columns."""

import json
import os
import re
import sys

import numpy as np
import pytest
import torch

from ldmnet.data.readers import image_suffixes, listed_faults
from ldmnet.data.userdata import read_samples
from ldmnet.errors import DataError
from ldmnet.training.standardize import Standardize, checked_outputs


@pytest.fixture
def image():
    return pytest.importorskip("PIL.Image", reason="images need Pillow")


def folder_of(image, path, *endings):
    for c, name in enumerate("ab"):
        (path / name).mkdir(parents=True)
        for ending in endings:
            image.fromarray(np.full((8, 8, 3), 90 * c, np.uint8)).save(path / name / f"one{ending}")
    return path


def test_every_ending_that_pillow_opens_is_read(image, tmp_path):
    endings = [".jfif", ".jpe", ".png", ".PNG", ".tiff", ".tga", ".ppm"]
    endings += [end for end, kind in ((".webp", "WEBP"), (".jp2", "JPEG2000"), (".avif", "AVIF")) if kind in image.SAVE]
    samples = read_samples(folder_of(image, tmp_path / "photos", *endings))
    assert len(samples.x) == 2 * len(endings)
    assert samples.notes == ()
    assert samples.skipped == {}


def test_what_needs_another_program_or_is_no_picture_is_no_image(image):
    assert {".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"} <= image_suffixes()
    assert not {".eps", ".ps", ".pdf", ".wmf", ".emf", ".mpg", ".mpeg", ".h5", ".grib"} & image_suffixes()


def test_what_is_beside_the_images_is_named_and_the_systems_own_files_are_not(image, tmp_path):
    photos = folder_of(image, tmp_path / "photos", ".png")
    for name in ("a/photo.heic", "a/notes", "b/Thumbs.db", "b/.DS_Store", "b/._one.png", "a/desktop.ini"):
        (photos / name).write_text("x")
    (photos / "b" / "more").mkdir()
    (photos / "readme.txt").write_text("beside the classes, where no sample is looked for")
    (photos / "lost.png").write_bytes((photos / "a" / "one.png").read_bytes())
    samples = read_samples(photos)
    assert len(samples.x) == 2
    assert samples.skipped == {}
    assert samples.notes == (
        f"left out 4 entries beside the images: {photos / 'a/notes'} (ending none), {photos / 'a/photo.heic'} (ending "
        f".heic), {photos / 'b/more'} (a folder), {photos / 'lost.png'} (in no class's folder)",
    )


def test_one_image_is_data_to_predict_and_not_to_train_on(image, tmp_path, says):
    photo = folder_of(image, tmp_path / "photos", ".jpg") / "b" / "one.jpg"
    samples = read_samples(photo, shape=(3, 8, 8))
    assert (samples.x.shape, samples.names, samples.y) == ((1, 3, 8, 8), ["one.jpg"], None)
    with pytest.raises(DataError, match=r"one\.jpg is neither an \.npz file"):
        read_samples(photo)
    photo.write_text("nothing")
    with says(DataError):
        read_samples(photo, shape=(3, 8, 8))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_arrays_of_images_with_the_channels_last_are_turned(tmp_path, channels):
    x = np.random.default_rng(0).integers(0, 255, (4, 6, 7, channels), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1])
    samples = read_samples(tmp_path / "a.npz")
    assert samples.x.dtype == torch.uint8
    np.testing.assert_array_equal(samples.x.numpy(), x.transpose(0, 3, 1, 2))
    assert samples.notes == (
        f"{tmp_path / 'a.npz'}: x of shape {x.shape} is read as images of 6 x 7 pixels with the channels last",
    )


@pytest.mark.parametrize("shape", [(3, 6, 7), (1, 28, 28), (5, 6, 7), (2, 2, 3)])
def test_arrays_with_the_channels_first_stay_without_a_word(tmp_path, shape):
    x = np.random.default_rng(0).normal(size=(4, *shape))
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1])
    samples = read_samples(tmp_path / "a.npz")
    np.testing.assert_array_equal(samples.x.numpy(), x)
    assert samples.notes == ()


def test_arrays_that_may_be_either_are_read_with_the_channels_first_and_say_so(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 3))
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1])
    samples = read_samples(tmp_path / "a.npz")
    np.testing.assert_array_equal(samples.x.numpy(), x)
    assert samples.notes == (
        f"{tmp_path / 'a.npz'}: x of shape (4, 3, 6, 3) is read as images of 6 x 3 pixels with the channels first; "
        "transpose them if they are last",
    )
    assert read_samples(tmp_path / "a.npz", shape=(3, 6, 3)).notes == ()  # as in training


@pytest.mark.parametrize(
    ("y", "names", "codes"),
    [
        (np.array(["oak", "elm", "oak"]), ["elm", "oak"], [1, 0, 1]),
        (np.array([b"oak", "\u00e9".encode(), b"oak"]), ["oak", "\u00e9"], [0, 1, 0]),
        (np.array([True, False, True]), ["False", "True"], [1, 0, 1]),
        (np.array(["10", "9", "10"]), ["9", "10"], [1, 0, 1]),
        (np.array([10, 9, 10]), ["9", "10"], [1, 0, 1]),
    ],
)
def test_labels_of_arrays_may_be_text_bytes_and_bool(tmp_path, y, names, codes):
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=y)
    for shape in (None, (3,)):
        samples = read_samples(tmp_path / "a.npz", shape=shape)
        assert samples.class_names == names
        assert samples.labels.tolist() == codes


@pytest.mark.parametrize(
    "y",
    [
        np.array(["oak", "elm", "oak"], object),
        np.array(["oak", "elm"]),
        np.array(["oak", "", "oak"]),
        np.array([b"\xff", b"a", b"a"]),
        np.array([0.5, 1, 2]),
    ],
)
def test_labels_of_arrays_that_do_not_do(tmp_path, y, says):
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=y)
    with says(DataError):
        read_samples(tmp_path / "a.npz")


def table(tmp_path, *lines):
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "t.csv"


@pytest.mark.parametrize("label", ["kind", None])
def test_columns_of_the_training_are_taken_by_name_and_others_are_ignored(tmp_path, label):
    named = label or "Class"
    path = table(tmp_path, f",id,b,{named},name,a", '0,17,2,u,"tree, old",1', "1,x,4,v,,3")
    samples = read_samples(path, label=label, shape=(2,), columns=["a", "b"])
    assert samples.x.tolist() == [[1, 2], [3, 4]]
    assert (samples.class_names, samples.labels.tolist()) == (["u", "v"], [0, 1])
    assert samples.notes == (
        f"{path}: ignored columns that the training had not: column 1, which has no name, id, name",
    )


def test_an_id_beside_the_columns_of_the_training_is_not_taken_for_labels(tmp_path):
    samples = read_samples(table(tmp_path, "id,a,b", "7,1,2", "8,3,4"), label="kind", shape=(2,), columns=["a", "b"])
    assert samples.y is None
    assert samples.x.tolist() == [[1, 2], [3, 4]]
    assert samples.notes[0].endswith("had not: id")


@pytest.mark.parametrize(
    "lines",
    [
        ["id,a", "7,1"],
        ["id,A,B", "7,1,2"],
        ["7,1,2", "8,3,4"],
        ["7,1,2,3", "8,3,4,3"],
        ["id,a,b", "7,1"],
        ["id,a,b", "7,1,x"],
    ],
)
def test_tables_that_lack_what_the_training_had(tmp_path, lines, says):
    path = table(tmp_path, *lines)
    with says(DataError):
        read_samples(path, label="kind", shape=(2,), columns=["a", "b"])


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="names are text there")
def test_names_that_are_not_utf8(image, tmp_path):
    photos = folder_of(image, tmp_path / "photos", ".png")
    for content in (b"caf\xe9.png", b"cut\xff.png"):
        (photos / "a" / os.fsdecode(content)).write_bytes((photos / "b" / "one.png").read_bytes())
    (photos / "a" / os.fsdecode(b"cut\xff.png")).write_text("nothing")
    samples = read_samples(photos)
    assert samples.names == ["a/caf\\xe9.png", "a/one.png", "b/one.png"]
    for words in (*samples.names, *samples.notes, listed_faults(samples.skipped)):
        words.encode("utf-8")
    (photos / os.fsdecode(b"\xff")).mkdir()
    words = f"{photos}: the name of the folder \\xff is not text in UTF-8. Rename it."
    with pytest.raises(DataError, match=re.escape(words) + "$"):
        read_samples(photos)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e30, 1e200])
@pytest.mark.parametrize("shape", [(50, 3), (50, 2, 4, 4)])
def test_values_of_every_size_are_standardised(size, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    found, plain = Standardize.fit(x * size), Standardize.fit(x)
    torch.testing.assert_close(found(x * size), plain(x), rtol=1e-6, atol=1e-6)
    assert float(plain(x).std()) == pytest.approx(1, abs=0.1)


def test_a_value_that_leaves_float32_is_refused():
    fitted = Standardize.fit(torch.randn(20, 2, dtype=torch.float64) * 1e-10)
    x = torch.zeros(5, 2, dtype=torch.float64)
    x[3, 1] = 1e35
    words = (
        "sample 4, and 0 others of 5: its values leave float32 when they are standardised as the training set was. "
        "Correct or remove them."
    )
    with pytest.raises(DataError, match=re.escape(words) + "$"):
        fitted(x)
    with pytest.raises(DataError, match=r"^sample 2, and 1 others of 3: the network's numbers leave float32"):
        checked_outputs(torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 0.0]]))
    large = torch.full((3, 2), 3e38)  # finite, though their sum is not
    assert torch.equal(checked_outputs(large), large)


@pytest.mark.parametrize("wrong", [{"mean": [float("inf")]}, {"deviation": [0.0]}, {"deviation": [float("nan")]}])
def test_statistics_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="is not a finite number, or not above zero"):
        Standardize.from_json({"mean": [1.0], "deviation": [1.0], **wrong})


@pytest.mark.parametrize("column", [[7.0] * 60, [1e17 + 48] * 60, [7.77e22] * 60, [1e17 + 16 * i for i in range(60)]])
def test_a_column_that_never_changed_in_training_is_left_out_whatever_it_is_later(column):
    x = torch.randn(60, 2, dtype=torch.float64)
    odd = torch.cat([x, torch.tensor(column, dtype=torch.float64)[:, None]], 1)
    fitted, plain = Standardize.fit(odd), Standardize.fit(x)
    assert torch.equal(fitted(odd)[:, :2], plain(x))
    odd[:, 2] = torch.randn(60, dtype=torch.float64).exp() * 1e20
    again = Standardize.from_json(json.loads(json.dumps(fitted.to_json())))
    assert float(again(odd)[:, 2].abs().max()) == 0
