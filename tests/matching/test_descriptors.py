"""Descriptors by dlib; a stand-in for dlib itself, which is not needed for the tests."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from made_up import yaleb_file

from ldmnet.cli import main
from ldmnet.data.faces import load_match_table, read_match_npz, save_match_npz
from ldmnet.errors import InputError
from ldmnet.matching import descriptors
from ldmnet.matching.descriptors import DlibDescriptor


class Box:
    def __init__(self, left, top, right, bottom):
        self.corners = (left, top, right, bottom)

    def area(self):
        return (self.corners[2] - self.corners[0]) * (self.corners[3] - self.corners[1])


@dataclass
class Shape:
    box: Box
    landmarks: list[tuple[int, int]]

    def parts(self):
        return [SimpleNamespace(x=x, y=y) for x, y in self.landmarks]


FOUND = [(34, 20), (28, 20), (10, 20), (16, 20), (22, 32)]  # by the stand-in's finder, if no pixel moves them


@pytest.fixture
def dlib(monkeypatch):
    """Finds a small and a large face in a bright image and none in a dark one; describes a chip by its mean.

    The first pixel says how far to the right the landmarks are of where they are in other images.
    """
    seen = SimpleNamespace(shapes=[], sizes=[])

    def detector():
        return lambda image, upsampled: [Box(0, 0, 2, 2), Box(1, 1, 5, 6)] if image.mean() > 100 else []

    def landmarks(path):
        assert path.endswith("models/shape_predictor_5_face_landmarks.dat")
        return lambda image, box: Shape(box, [(x + int(image[0, 0, 0]) - 200, y) for x, y in FOUND])

    def chip(image, shape, size):
        assert image.dtype == np.uint8
        assert image.shape[2] == 3
        seen.shapes.append(shape)
        seen.sizes.append(size)
        return image

    class ResNet:
        def __init__(self, path):
            assert path.endswith("models/dlib_face_recognition_resnet_model_v1.dat")

        def compute_face_descriptor(self, chips):
            return [np.full(128, chip.mean()) for chip in chips]

    module = SimpleNamespace(
        get_frontal_face_detector=detector, shape_predictor=landmarks, face_recognition_model_v1=ResNet,
        rectangle=Box, get_face_chip=chip, point=lambda x, y: (x, y), points=list, full_object_detection=Shape,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "dlib", module)
    monkeypatch.setattr(descriptors, "_models", lambda: descriptors.Path("models"))
    return seen


def bright(n):
    return torch.full((n, 20, 10), 200, dtype=torch.uint8)


def dark(n):
    return torch.full((n, 20, 10), 50, dtype=torch.uint8)


def test_the_largest_face_is_taken_or_the_middle(dlib):
    describe = DlibDescriptor()
    images = torch.cat([bright(1), dark(1)])
    found = describe(images)
    assert found.shape == (2, 128)
    assert found[:, 0].tolist() == [200, 50]
    assert [shape.box.corners for shape in dlib.shapes] == [(1, 1, 5, 6), (6, 14, 14, 28)]  # margins of 5 and 10
    assert dlib.sizes == [150, 150]
    assert describe.undetected == 1
    assert torch.equal(describe(images[..., None].expand(2, 20, 10, 3)), found)


def test_margins_repeat_the_edges():
    image = torch.arange(101, 125, dtype=torch.uint8).reshape(1, 6, 4)
    rows, columns = [0] * 3 + [0, 1, 2, 3, 4, 5] + [5] * 3, [0] * 2 + [0, 1, 2, 3] + [3] * 2
    padded = descriptors._padded(image)[0]
    assert padded.shape == (12, 8, 3)
    assert np.array_equal(padded[..., 1], image[0].numpy()[np.ix_(rows, columns)])


def test_a_face_that_is_not_detected_is_aligned_as_the_others_are(dlib):
    images = torch.cat([bright(11), dark(3)])
    images[0, 0, 0] = 210  # one is found elsewhere: a median does not mind
    describe = DlibDescriptor()
    describe.align(images)
    assert describe.common == FOUND
    assert describe.undetected == 0  # nothing is described yet
    describe(images)
    assert describe.undetected == 3
    assert [shape.landmarks for shape in dlib.shapes[1:]] == [FOUND] * 13
    assert dlib.shapes[0].landmarks[0] == (44, 20)  # a face that was found keeps its own


def test_images_that_are_not_crops_of_one_place_have_no_common_landmarks(dlib):
    images = bright(21)
    images[:, 0, 0] = torch.arange(190, 211, dtype=torch.uint8)
    describe = DlibDescriptor()
    describe.align(images)
    assert describe.common is None
    describe.align(torch.cat([bright(9), dark(30)]))  # too few faces to tell
    assert describe.common is None
    describe.align(dark(5))
    assert describe.common is None


@pytest.mark.usefixtures("dlib")
def test_what_is_no_image_is_refused(says):
    describe = DlibDescriptor()
    with says(InputError):  # fmt: skip
        describe(torch.zeros(2, 5, dtype=torch.uint8))
    with says(InputError):  # fmt: skip
        describe(torch.zeros(2, 5, 5))


@pytest.mark.usefixtures("dlib")
def test_a_described_table_keeps_its_people_and_their_splits(tmp_path):
    yaleb_file(tmp_path / "data")
    out = tmp_path / "yaleb-dlib.npz"
    result = CliRunner().invoke(main, ["describe", "yaleb", "--output", str(out), "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    pixels, described = load_match_table("yaleb", tmp_path / "data"), read_match_npz(out, "light from the front")
    assert result.output.startswith(f"{out}: {len(pixels.x)} descriptors")
    assert described.x.shape == (len(pixels.x), 128)
    for name in ("identity", "modality", "enrolled"):
        assert torch.equal(getattr(described, name), getattr(pixels, name))
    assert (described.people, described.modalities) == (pixels.people, pixels.modalities)
    assert described.scale is None
    assert described.note == pixels.note
    again = tmp_path / "again.npz"
    save_match_npz(described, again)
    assert torch.equal(read_match_npz(again, "light from the front").x, described.x)


@pytest.mark.usefixtures("dlib")
def test_how_many_faces_were_not_detected_is_kept_with_the_descriptors(tmp_path):
    images = np.concatenate([bright(12), dark(4)])
    path, out = tmp_path / "mine.npz", tmp_path / "dlib.npz"
    np.savez(path, x=images, identity=np.arange(16) // 2, modality=["A", "B"] * 8)
    result = CliRunner().invoke(main, ["describe", str(path), "--output", str(out)])
    note = "no face was detected in 4 of 16 images, which were aligned as the others are"
    assert result.output == f"{out}: 16 descriptors; {note}\n"
    assert read_match_npz(out).note == note


@pytest.mark.usefixtures("dlib")
@pytest.mark.parametrize(("words", "sentence"), [
    (["lfw", "--output", "there.npz"], "there is no table 'lfw'. Name yaleb or cufs, or an .npz file."),
    (["cufs", "--output", "there.csv"], "--output must end in .npz, got there.csv."),
])  # fmt: skip
def test_what_cannot_be_described_is_said(words, sentence):
    result = CliRunner().invoke(main, ["describe", *words])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
