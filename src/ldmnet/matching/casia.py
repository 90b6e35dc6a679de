r"""CASIA NIR-VIS 2.0 by its own protocol files.

    table, folds = read_casia("CASIA", folds=range(1, 11))

The folder holds `s1` to `s4` and `protocols`. View 1 is the fold "dev", for choosing settings; view 2 has the folds 1
to 10. A list's line is a relative path with backslashes, `s2\VIS\10153\003.jpg`; the extension on disk may be another.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from ldmnet.data.readers import is_image, read_images
from ldmnet.errors import DataError, InputError
from ldmnet.files import read_bounded
from ldmnet.matching.protocols import Fold
from ldmnet.matching.table import MatchTable, read_npz_arrays, standardised

FOLDS = ("dev", *map(str, range(1, 11)))
LISTS = ("vis_train", "nir_train", "vis_gallery", "nir_probe")
PIXELS = 64  # height and width that images are brought to
SHOWN = 20


def read_lists(root: str | Path, fold: int | str) -> dict[str, list[str]]:
    """The four protocol files of one fold by name, as paths without extension, `s2/VIS/10153/003`.

    Args:
        root: the data set's folder.
        fold: "dev", or 1 to 10.
    """
    if str(fold) not in FOLDS:
        raise InputError(f"CASIA NIR-VIS 2.0 has no fold {fold!r}. The folds: dev (view 1) and 1 to 10 (view 2).")
    folder = Path(root).expanduser() / "protocols"
    files = {name: folder / f"{name}_{fold}.txt" for name in LISTS}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise DataError(
            f"{folder} lacks {', '.join(absent)}. Name the folder of CASIA NIR-VIS 2.0, with s1 to s4 and protocols."
        )
    return {name: _read_list(file) for name, file in files.items()}


def read_casia(
    root: str | Path, folds: Iterable[int | str], *, features: str | Path | None = None
) -> tuple[MatchTable, list[Fold]]:
    """The table of all images that some folds name, and those folds.

    Args:
        root: the data set's folder; with `features` only its protocols are read.
        folds: which, of "dev" and 1 to 10.
        features: an .npz file with the descriptors `x` (n, d) and the images' paths `path` (n,), in place of pixels.
    """
    names = list(folds)
    lists = [read_lists(root, fold) for fold in names]
    keys = sorted({key for one in lists for part in one.values() for key in part})
    x = _pixels(Path(root).expanduser(), keys) if features is None else _features(features, keys)
    people, identity = np.unique([key.split("/")[-2] for key in keys], return_inverse=True)
    nir = {key for one in lists for name, part in one.items() if name.startswith("nir") for key in part}
    table = MatchTable(
        name="casia",
        x=x,
        identity=torch.from_numpy(identity),
        modality=torch.tensor([int(key in nir) for key in keys]),
        people=tuple(map(str, people)),
        modalities=("VIS", "NIR"),
        scale=float(PIXELS) if features is None else None,
    )
    row = {key: i for i, key in enumerate(keys)}
    return table, [_fold(table, row, one, f"fold {name}") for name, one in zip(names, lists, strict=True)]


def key_of(path: str) -> str:
    """A path with forward slashes and without its extension; empty if it leads out of the data set, or nowhere."""
    found = PurePosixPath(path.strip().replace("\\", "/"))
    if not found.name or found.is_absolute() or ".." in found.parts or "\0" in path:
        return ""
    return str(found.with_suffix(""))


def _read_list(file: Path) -> list[str]:
    keys = []
    try:
        lines = read_bounded(file).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not a list of images: it is not UTF-8 ({error.reason}).") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key = key_of(line)
        if key.count("/") < 2:
            raise DataError(
                f"{file}, line {number}: {line.strip()!r} is not a path like s1\\NIR\\10039\\001.bmp."
            )  # fmt: skip
        keys.append(key)
    if not keys:
        raise DataError(f"{file} lists no images.")
    return keys


def _fold(table: MatchTable, row: dict[str, int], lists: dict[str, list[str]], name: str) -> Fold:
    vis, nir, gallery, probe = (torch.tensor([row[key] for key in dict.fromkeys(lists[part])]) for part in LISTS)
    people, others, tested = (set(table.identity[rows].tolist()) for rows in (vis, nir, torch.cat([gallery, probe])))
    return Fold(
        name,
        torch.cat([vis, nir]),
        gallery,
        probe,
        one_modality=len(people ^ others),
        shared_people=len((people | others) & tested),
    )


def _pixels(root: Path, keys: Sequence[str]) -> Tensor:
    """The images of some keys in grey, each standardised; all that are missing are named at once."""
    folders = sorted({root / key.rsplit("/", 1)[0] for key in keys})
    files = (file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if is_image(file))
    on_disk = {key_of(file.relative_to(root).as_posix()): file for file in files}
    _refuse_missing(on_disk, keys, root, "Get them, or name the folder that holds s1 to s4.")
    return standardised(read_images([on_disk[key] for key in keys], (PIXELS, PIXELS), grey=True))


def _features(path: str | Path, keys: Sequence[str]) -> Tensor:
    """The rows of a file of descriptors that belong to some keys."""
    arrays = read_npz_arrays(path, ("x", "path"), "Save it with np.savez(file, x=descriptors, path=paths).")
    x, paths = arrays["x"], arrays["path"]
    if x.ndim != 2 or x.dtype.kind not in "biuf" or paths.shape != (len(x),):
        raise DataError(
            f"{path}: x must be numbers (n, d) and path (n,), got {x.dtype} {x.shape} and {paths.shape}."
        )  # fmt: skip
    row = {key_of(str(p)): i for i, p in enumerate(paths)}
    _refuse_missing(row, keys, path, "Extract the descriptors of every listed image.")
    chosen = x[[row[key] for key in keys]]
    bad = [keys[i] for i in np.flatnonzero(~np.isfinite(chosen).all(1)).tolist()]
    if bad:
        raise DataError(f"{path}: x has NaN or infinite values for {_listed(bad)}. Mend the extractor.")
    return torch.as_tensor(chosen).float()


def _refuse_missing(there: Container[str], keys: Sequence[str], where: str | Path, advice: str) -> None:
    if missing := [key for key in keys if key not in there]:
        raise DataError(f"{len(missing)} of {len(keys)} images are missing in {where}: {_listed(missing)}. {advice}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
