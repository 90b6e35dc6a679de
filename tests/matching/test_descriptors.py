"""Descriptors by dlib; a stand-in for dlib itself, which is not needed for the tests."""

import sys
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
from words import exactly


class Box:
    def __init__(self, left, top, right, bottom):
        self.corners = (left, top, right, bottom)

    def area(self):
        return (self.corners[2] - self.corners[0]) * (self.corners[3] - self.corners[1])


@pytest.fixture
def dlib(monkeypatch):
    """Finds a small and a large face in a bright image and none in a dark one; describes a chip by its mean."""
    seen = SimpleNamespace(boxes=[], sizes=[])

    def detector():
        return lambda image, upsampled: [Box(0, 0, 2, 2), Box(1, 1, 5, 6)] if image.mean() > 100 else []

    def landmarks(path):
        assert path.endswith("models/shape_predictor_5_face_landmarks.dat")
        return lambda image, box: seen.boxes.append(box.corners)

    def chip(image, shape, size):
        assert image.dtype == np.uint8
        assert image.shape[2] == 3
        seen.sizes.append(size)
        return image

    class ResNet:
        def __init__(self, path):
            assert path.endswith("models/dlib_face_recognition_resnet_model_v1.dat")

        def compute_face_descriptor(self, chips):
            return [np.full(128, chip.mean()) for chip in chips]

    module = SimpleNamespace(
        get_frontal_face_detector=detector, shape_predictor=landmarks, face_recognition_model_v1=ResNet,
        rectangle=Box, get_face_chip=chip,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "dlib", module)
    monkeypatch.setattr(descriptors, "_models", lambda: descriptors.Path("models"))
    return seen


def test_the_largest_face_is_taken_or_the_middle(dlib):
    describe = DlibDescriptor()
    images = torch.stack([torch.full((20, 10), 200), torch.full((20, 10), 50)]).to(torch.uint8)
    found = describe(images)
    assert found.shape == (2, 128)
    assert found[:, 0].tolist() == [200, 50]
    assert dlib.boxes == [(1, 1, 5, 6), (1, 4, 9, 18)]
    assert dlib.sizes == [150, 150]
    assert describe.undetected == 1
    assert torch.equal(describe(images[..., None].expand(2, 20, 10, 3)), found)


@pytest.mark.usefixtures("dlib")
def test_what_is_no_image_is_refused():
    describe = DlibDescriptor()
    with pytest.raises(InputError, match=exactly(
        "images must be (n, height, width) or (n, height, width, 3), got (2, 5)."
    )):  # fmt: skip
        describe(torch.zeros(2, 5, dtype=torch.uint8))
    with pytest.raises(InputError, match=exactly(
        "images must be whole numbers of 0 to 255 (uint8), got torch.float32."
    )):  # fmt: skip
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
    again = tmp_path / "again.npz"
    save_match_npz(described, again)
    assert torch.equal(read_match_npz(again, "light from the front").x, described.x)


@pytest.mark.usefixtures("dlib")
@pytest.mark.parametrize(("words", "sentence"), [
    (["lfw", "--output", "there.npz"], "there is no table 'lfw'. Name yaleb or cufs, or an .npz file."),
    (["cufs", "--output", "there.csv"], "--output must end in .npz, got there.csv."),
])  # fmt: skip
def test_what_cannot_be_described_is_said(words, sentence):
    result = CliRunner().invoke(main, ["describe", *words])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
