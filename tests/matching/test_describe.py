"""Descriptors of any callable in the place of pixels, by `extract`, and the file they are kept in."""

import numpy as np
import torch
from made_up import yaleb_file

from ldmnet.matching import extract, load_match_table, read_match_npz, save_match_npz


def described(images):
    """A stand-in for a pretrained network: the mean of every row of pixels."""
    return extract(lambda batch: batch.float().mean(2), torch.from_numpy(images), progress=False)


def test_a_described_table_keeps_its_people_and_their_splits(tmp_path):
    yaleb_file(tmp_path / "data")
    pixels, found = (load_match_table("yaleb", tmp_path / "data", how) for how in (None, described))
    save_match_npz(found, tmp_path / "mine.npz")
    again = read_match_npz(tmp_path / "mine.npz", "light from the front")
    for name in ("identity", "modality", "enrolled"):
        assert torch.equal(getattr(again, name), getattr(pixels, name))
    assert (again.people, again.modalities, again.note) == (pixels.people, pixels.modalities, pixels.note)
    assert again.scale is None
    assert torch.equal(again.x, found.x)
    assert found.x.shape == (len(pixels.x), found.x.shape[1])


def test_images_of_a_users_file_are_described(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (8, 6, 4), np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, identity=np.arange(8) // 2, modality=["A", "B"] * 4)
    table = read_match_npz(tmp_path / "mine.npz", describe=described)
    assert torch.allclose(table.x, torch.from_numpy(images).float().mean(2))
