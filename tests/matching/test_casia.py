"""A small made-up tree in exactly the layout of CASIA NIR-VIS 2.0."""

import os

import numpy as np
import pytest
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.errors import DataError, InputError
from ldmnet.matching.casia import read_casia, read_lists
from ldmnet.records import read_records
from ldmnet.runs import matching

TRAIN, TEST = ("10039", "20118", "30550"), ("10153", "30902")


@pytest.fixture(params=["\n", "\r\n"], ids=["LF", "CRLF"])
def tree(request, tmp_path):
    """Two NIR and two VIS images per subject; on disk NIR is .bmp and VIS .jpg, the lists say the other way round."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    lists = {
        f"{kind}_{fold}": [] for kind in ("vis_train", "nir_train", "vis_gallery", "nir_probe") for fold in (1, "dev")
    }
    for subject in (*TRAIN, *TEST):
        session = f"s{subject[0]}"
        for modality, on_disk, listed in (("NIR", "bmp", "jpg"), ("VIS", "jpg", "bmp")):
            folder = tmp_path / session / modality / subject
            folder.mkdir(parents=True)
            for shot in ("001", "002"):
                pixels = rng.integers(0, 256, (20, 16), dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{shot}.{on_disk}")
                line = f"{session}\\{modality}\\{subject}\\{shot}.{listed}"
                for fold in (1, "dev"):
                    if subject in TRAIN:
                        lists[f"{modality.lower()}_train_{fold}"].append(line)
                    elif modality == "NIR":
                        lists[f"nir_probe_{fold}"].append(line)
                    elif shot == "001":
                        lists[f"vis_gallery_{fold}"].append(line)
    (tmp_path / "protocols").mkdir()
    for name, lines in lists.items():
        (tmp_path / "protocols" / f"{name}.txt").write_bytes((request.param.join(lines) + request.param).encode())
    return tmp_path


def subjects(table, rows):
    return [table.people[i] for i in table.identity[rows].tolist()]


def test_the_lists_are_followed(tree):
    table, (fold, dev) = read_casia(tree, [1, "dev"])
    assert table.modalities == ("VIS", "NIR")
    assert table.x.shape == (18, 64 * 64)  # the second VIS image of a test subject is in no list
    assert (len(fold.train), len(fold.gallery), len(fold.probe)) == (12, 2, 4)
    assert set(subjects(table, fold.train)) == set(TRAIN)
    assert subjects(table, fold.gallery) == list(TEST)
    assert set(table.modality[fold.gallery].tolist()) == {0}
    assert set(table.modality[fold.probe].tolist()) == {1}
    assert (fold.name, dev.name) == ("fold 1", "fold dev")
    assert (fold.shared_people, fold.one_modality) == (0, 0)
    assert np.allclose(table.x.mean(1), 0, atol=1e-5)


def test_paths_have_no_extension_and_forward_slashes(tree):
    assert read_lists(tree, 1)["vis_gallery"] == ["s1/VIS/10153/001", "s3/VIS/30902/001"]


def test_descriptors_take_the_place_of_pixels(tree, tmp_path, says):
    keys = [
        f"s{s[0]}\\{m}\\{s}\\{shot}.png" for s in (*TRAIN, *TEST) for m in ("NIR", "VIS") for shot in ("001", "002")
    ]
    x = np.arange(len(keys) * 3, dtype=np.float32).reshape(-1, 3)
    np.savez(tmp_path / "features.npz", x=x, path=keys)
    for folder in ("s1", "s2", "s3"):
        (tree / folder).rename(tree / f"away-{folder}")  # the images are not needed
    table, (fold,) = read_casia(tree, [1], features=tmp_path / "features.npz")
    gallery = keys.index("s1\\VIS\\10153\\001.png")
    assert table.x[fold.gallery[0]].tolist() == x[gallery].tolist()
    np.savez(tmp_path / "short.npz", x=x[:-2], path=keys[:-2])
    with says(DataError):
        read_casia(tree, [1], features=tmp_path / "short.npz")
    x[gallery, 0] = np.nan
    np.savez(tmp_path / "nan.npz", x=x, path=keys)
    with says(DataError):
        read_casia(tree, [1], features=tmp_path / "nan.npz")


def test_all_missing_images_are_named_at_once(tree):
    for file in tree.glob("s1/*/*/*"):
        file.unlink()
    more = [f"s1\\NIR\\10039\\{i:03d}.bmp" for i in range(3, 25)]
    with (tree / "protocols" / "nir_train_1.txt").open("a") as file:
        file.write("\n".join(more) + "\n")
    with pytest.raises(DataError) as caught:
        read_casia(tree, [1])
    words = str(caught.value)
    assert words.startswith(f"29 of 40 images are missing in {tree}: s1/NIR/10039/001, s1/NIR/10039/002,")
    assert words.count("s1/") == 20
    assert words.endswith(" and 9 more. Get them, or name the folder that holds s1 to s4.")


def test_what_is_not_a_protocol_is_said(tree, says):
    protocols = tree / "protocols"
    with says(InputError):
        read_lists(tree, 11)
    with says(DataError):
        read_casia(tree, [2])
    (protocols / "nir_probe_1.txt").write_text("\ns1\\NIR\\10153\\001.bmp\n10153 1\n")
    with says(DataError):
        read_casia(tree, [1])
    (protocols / "nir_probe_1.txt").write_text("\n")
    with says(DataError):
        read_casia(tree, [1])


@pytest.mark.parametrize("line", ["..", ".", "/", "a/b/..", "../../a/b/c.bmp", "/etc/a/b/c.bmp", "a/b/c\0.bmp", "\\"])
def test_lines_that_lead_out_of_the_data_set_are_refused(tree, line):
    (tree / "protocols" / "nir_probe_1.txt").write_text(f"{line}\n")
    with pytest.raises(DataError, match=r"line 1: .* is not a path like"):
        read_casia(tree, [1])


def test_a_list_that_is_not_text_is_refused(tree):
    (tree / "protocols" / "nir_probe_1.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not a list of images: it is not UTF-8"):
        read_casia(tree, [1])


def test_an_image_that_cannot_be_read_is_named(tree):
    broken = tree / "s1" / "VIS" / "10153" / "001.jpg"
    broken.write_bytes(b"not an image")
    with pytest.raises(DataError, match="unreadable: ") as caught:
        read_casia(tree, [1])
    assert str(broken) in str(caught.value)


@pytest.mark.slow
def test_the_command_runs_a_fold(tree, tmp_path):
    words = ["reproduce", "casia", "--data-dir", tree, "--fold", "1", "--methods", "pca", "--jobs", "1"]
    words += ["--runs-dir", tmp_path / "runs", "--results", tmp_path / "results"]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    (record,) = read_records([tmp_path / "results" / "casia.jsonl"])
    assert (record.seed, record.more["n_gallery"], record.n_test, record.paper) == (1, 2, 4, None)
    assert "probes (NIR) against a gallery of 2 (VIS)" in " ".join(result.output.split())
    os.utime(next(tree.rglob("*.jpg")), (0, 0))  # another picture: the run is made anew
    matching._file_hash.cache_clear()  # as in a new process
    CliRunner().invoke(main, [str(word) for word in words])
    assert len(read_records([tmp_path / "results" / "casia.jsonl"])) == 2


def test_settings_are_not_tuned_on_what_is_tested(tree):
    result = CliRunner().invoke(main, ["reproduce", "casia", "--data-dir", str(tree), "--fold", "dev", "--tune"])
    assert result.exit_code == 2
    assert "--tune goes with folds 1 to 10" in result.output
