"""Readers: whole files, changed in every way, must give a value or an error of ours, in little memory and time."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import pickle
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attack.cases import Outcome, draw_of, in_batches, short
from ldmnet import ManifoldRegularizer
from ldmnet.data import read_cifar_batch, read_idx, read_svhn_mat
from ldmnet.data.csvtables import read_table
from ldmnet.data.readers import npz_arrays, read_images
from ldmnet.errors import LDMNetError
from ldmnet.files import parse_json
from ldmnet.matching.casia import read_lists
from ldmnet.matching.table import read_npz_arrays
from ldmnet.networks import mlp
from ldmnet.records.comparison import compared_rows, format_comparison
from ldmnet.records.leads import format_leads, parts_of
from ldmnet.records.record import read_records
from ldmnet.records.snapshots import read_snapshots
from ldmnet.records.tables import format_table, table_rows
from ldmnet.report import write_report
from ldmnet.report.collect import collect
from ldmnet.runs.trained import load_run
from ldmnet.training.checkpoint import SEAL, ZEROS, load_weights, read_checkpoint

ODD = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**40, 2**63, 1e308, -0.0, 1e-320, "", "a", "\0", "[/b]", "..", "é" * 40, [], {},
    [[]], {"a": {}}, [1] * 50, "9" * 50,
)  # fmt: skip
ODD_TEXT = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"null", b"[", b"]", b"{", b"}", b'"', b",", b"\n", b"\r", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\0", b"\\ud800", b"-", b"1e-400", b"'", b";", b"\t", b"..", b"/",
)  # fmt: skip

Reader = Callable[[Path], object]


def changed(content: bytes, draw: random.Random) -> bytes:
    """A file with one to four changes: flipped bits, odd numbers, cuts, repeats, zeroed sectors, odd words."""
    out = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if not out:
            return bytes(draw.randbytes(draw.randrange(20)))
        place, how = draw.randrange(len(out)), draw.randrange(10)
        near = draw.choice(
            (place, place, draw.randrange(min(128, len(out))), len(out) - 1 - draw.randrange(min(128, len(out))))
        )
        if how <= 2:
            out[near] ^= 1 << draw.randrange(8)
        elif how == 3:
            out[near] = draw.randrange(256)
        elif how == 4:
            width = draw.choice((1, 2, 4, 8))
            number = draw.choice(ODD) % 256**width
            out[near : near + width] = number.to_bytes(width, draw.choice(("little", "big")))
        elif how == 5:
            del out[place : len(out) if draw.random() < 0.5 else place + draw.randrange(1, 64)]
        elif how == 6:
            part = bytes(out[place : place + draw.randrange(1, 200)])
            out[near:near] = part * draw.choice((1, 1, 2, 50))
        elif how == 7:
            start = place // 512 * 512
            out[start : start + 512] = bytes(min(512, len(out) - start))
        elif how == 8:
            out[near:near] = draw.choice(ODD_TEXT)
        else:
            word = draw.choice(ODD_TEXT)
            out[near : near + len(word)] = word
    return bytes(out)


def changed_json(content: bytes, draw: random.Random) -> bytes:
    """JSON with a part of it replaced, left out or added; now and then changed as bytes."""
    if draw.random() < 0.4:
        return changed(content, draw)
    lines = content.decode().splitlines()
    which = draw.randrange(len(lines))
    value = json.loads(lines[which])
    for _ in range(draw.choice((1, 1, 2))):
        at: Any = value
        while isinstance(at, dict | list) and at:
            key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
            inner = at[key]
            if isinstance(inner, dict | list) and inner and draw.random() < 0.6:
                at = inner
                continue
            what = draw.random()
            if what < 0.15:
                del at[key]
            elif what < 0.25 and isinstance(at, dict):
                at[draw.choice(("", "a", "epoch", "format", "loss", "method"))] = copy.deepcopy(draw.choice(ODD_VALUES))
            else:
                at[key] = copy.deepcopy(draw.choice(ODD_VALUES))
            break
    lines[which] = json.dumps(value)
    return ("\n".join(lines) + "\n" * draw.randrange(2)).encode()


def resealed(content: bytes, draw: random.Random) -> bytes:
    """A checkpoint whose content was changed and whose checksum is right again."""
    if draw.random() < 0.3:
        return changed(content, draw)
    out = changed(content[: -len(SEAL) - 64], draw)
    return out + SEAL + hashlib.sha256(out).hexdigest().encode()


def resealed_weights(content: bytes, draw: random.Random) -> bytes:
    """Weights that were changed and whose checksum is right again, where there is one left."""
    if draw.random() < 0.3:
        return changed(content, draw)
    old = content[content.index(b'"sha256":"') + 10 :][:64]
    out = changed(content.replace(old, ZEROS, 1), draw)
    return out.replace(ZEROS, hashlib.sha256(out).hexdigest().encode(), 1)


def changed_state(state: Any, draw: random.Random) -> Any:
    """A regulariser's state with one part replaced."""
    odd = (
        *ODD_VALUES,
        torch.zeros(0),
        torch.ones(3, 2),
        torch.full((30, 4), torch.nan),
        torch.arange(30),
        float("nan"),
    )
    out = pickle.loads(pickle.dumps(state))
    at = out
    while True:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        inner = at[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.7:
            at = inner
        elif isinstance(inner, torch.Tensor) and inner.numel() and draw.random() < 0.5:
            inner.view(-1)[draw.randrange(inner.numel())] = draw.choice((-1, 0, 10**6, 29))
            return out
        elif draw.random() < 0.15 and isinstance(at, dict):
            del at[key]
            return out
        else:
            at[key] = copy.deepcopy(draw.choice(odd))
            return out


class Fuzz:
    """The part's cases: reader by reader in turn.

    Args:
        seed: of the attack.
    """

    name = "fuzz"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="attack-fuzz-", dir=shm if shm.is_dir() else None))
        self.readers: list[tuple[str, str, list[bytes], Callable[[bytes, random.Random], bytes], Reader]] = []
        _add_data(self, self.folder)
        _add_runs(self, self.folder)
        self.states = _states()

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, kind: str, file: str, whole: list[bytes], read: Reader, change: Any = changed) -> None:
        """Add a reader with files that it takes."""
        for content in whole:
            path = self.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            read(path)
        self.readers.append((kind, file, whole, change, read))

    def run(self, start: int, stop: int) -> Iterator[Outcome]:
        """The outcomes of some cases."""
        yield from in_batches(self._case, start, stop, size=2000)

    def _case(self, case: int) -> tuple[str, str, str]:
        draw = draw_of(self.seed, self.name, case)
        which = case % (len(self.readers) + 1)
        if which == len(self.readers):
            return ("regularizer.load_state_dict", *self._loaded(draw))
        kind, file, whole, change, read = self.readers[which]
        path = self.folder / file
        path.write_bytes(change(draw.choice(whole), draw))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(path)
            except LDMNetError:
                return kind, "refused", ""
            except BaseException as error:
                return kind, "not our error", short(error)
        return kind, "right", ""

    def _loaded(self, draw: random.Random) -> tuple[str, str]:
        make, state = draw.choice(self.states)
        regularizer = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                regularizer.load_state_dict(changed_state(state, draw))
                f = torch.randn(30, 4)
                regularizer.step(f)
                regularizer.penalty(f[:5], torch.arange(5))
            except LDMNetError:
                return "refused", ""
            except BaseException as error:
                return "not our error", short(error)
        return "right", ""


def _states() -> list[tuple[Callable[[], ManifoldRegularizer], Any]]:
    y, found = torch.arange(30) % 3, []
    for options in ({}, {"features": "running"}, {"mu": 0.1, "lambda_tilde": 0.5}):

        def make(options: Any = options) -> ManifoldRegularizer:
            return ManifoldRegularizer(groups=y, **options)

        regularizer = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(3):
                f = torch.randn(30, 4, generator=torch.Generator().manual_seed(step)) + step * y[:, None]
                regularizer.step(f)
                regularizer.penalty(f, torch.arange(30))
        found.append((make, regularizer.state_dict()))
    return found


def _shown(path: Path) -> None:
    """What a file of records becomes: tables, differences, parts of the gain, and one time in eight a page."""
    records = read_records([path])
    for name in {record.table for record in records}:
        mine = [record for record in records if record.table == name]
        if name == "comparison":
            format_comparison(compared_rows(mine), "md")
        format_table(table_rows(mine, name), "md")
        format_leads(mine, name)
    parts_of(records)
    if path.read_bytes()[-40:-30].count(b"0") == 1:
        write_report([path], path.with_name("report.html"))


def _page(path: Path) -> None:
    if len(path.read_bytes()) % 8 == 0:
        write_report([path.parent], path.with_name("report.html"))
    else:
        collect([path.parent])


def _saved(save: Callable[..., None], **arrays: Any) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def _add_data(fuzz: Fuzz, folder: Path) -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (2, 4, 4), np.uint8)
    idx = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in small.shape) + small.tobytes()
    fuzz.add("idx", "images-idx3-ubyte", [idx], read_idx)
    fuzz.add("idx.gz", "images-idx3-ubyte.gz", [gzip.compress(idx)], read_idx)
    data = rng.integers(0, 256, (1, 3072), np.uint8)
    batches = [pickle.dumps({"data": data, "labels": [1]}, protocol) for protocol in (2, 4)]
    fuzz.add("cifar batch", "data_batch_1", batches, read_cifar_batch)
    from scipy.io import savemat

    mats = []
    for compressed in (False, True):
        file = io.BytesIO()
        savemat(
            file, {"X": np.zeros((32, 32, 3, 1), np.uint8), "y": np.array([[1]], np.uint8)}, do_compression=compressed
        )
        mats.append(file.getvalue())
    fuzz.add("svhn .mat", "train_32x32.mat", mats, read_svhn_mat)
    x, y = rng.normal(size=(4, 3)), np.arange(4) % 2
    npz = [_saved(np.savez, x=x, y=y), _saved(np.savez_compressed, x=x, y=np.array(["a", "b", "a", "b"]))]
    fuzz.add("npz", "a.npz", npz, lambda path: npz_arrays(path))
    fuzz.add("npz without y", "b.npz", [_saved(np.savez, x=x)], lambda path: npz_arrays(path, labelled=False))
    fuzz.add("npz of matching", "c.npz", npz, lambda path: read_npz_arrays(path, ("x", "y")))
    tables = [
        b"a,b,label\n1,2,x\n3,4.5,y\n5,6,x\n",
        b"1;2;0\n3;4;1\n",
        b'a\tb\ty\n1\t2\t"p\nq"\n3\t4\tr\n',
        b"a,b,c\r1,2,3\r4,5,6\r",
    ]
    fuzz.add("csv", "a.csv", tables[:3], read_table)
    from PIL import Image

    for suffix in ("png", "jpg", "bmp", "gif", "tif", "webp", "pgm"):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (6, 6), np.uint8)).save(
            file, {"jpg": "jpeg", "tif": "tiff", "pgm": "ppm"}.get(suffix, suffix)
        )
        fuzz.add(
            f"image .{suffix}", f"image.{suffix}", [file.getvalue()], lambda path: read_images([path], None, False)
        )
    names = ("vis_train", "nir_train", "vis_gallery", "nir_probe")
    for name in names:
        path = folder / "protocols" / f"{name}_1.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"s1\\NIR\\10039\\001.bmp\ns1\\VIS\\10039\\001.jpg\n")
    listed = [b"s1\\NIR\\10039\\001.bmp\ns1\\VIS\\10039\\002.bmp\n"]
    fuzz.add("casia lists", "protocols/nir_probe_1.txt", listed, lambda path: read_lists(path.parents[1], 1))


def _add_runs(fuzz: Fuzz, folder: Path) -> None:
    """Readers of what the package itself writes, with files of a small training."""
    from attack.commands import trained_folder

    run = folder / "run"
    trained_folder(run)
    whole = {path.name: path.read_bytes() for path in run.iterdir()}
    content = parse_json(whole["run.json"].decode())  # without checksums, so that what is behind them is reached
    whole["run.json"] = json.dumps({name: value for name, value in content.items() if name != "files"}).encode()
    (run / "run.json").write_bytes(whole["run.json"])
    record = run / "run.json"
    fuzz.add("records", "records.jsonl", [whole["run.json"] + b"\n"], lambda path: read_records([path]), changed_json)
    lines = b""
    for method in ("none", "control", "ldmnet"):
        for seed in (0, 1):
            one = {
                **json.loads(whole["run.json"]),
                "method": method,
                "seed": seed,
                "hash": f"{method}{seed}",
                "per_class": 50,
            }
            lines += (
                json.dumps({**one, "accuracy": 90.0 + seed, "selection": "printed", "table": "mnist"}).encode() + b"\n"
            )
            lines += json.dumps({**one, "table": "comparison"}).encode() + b"\n"
    fuzz.add("records to tables", "shown.jsonl", [lines], _shown, changed_json)
    fuzz.add("run.json", "run/run.json", [whole["run.json"]], lambda path: load_run(path.parent), changed_json)
    record.write_bytes(whole["run.json"])
    model = mlp(3, 2, (4,))
    from ldmnet.training.checkpoint import save_weights

    save_weights(model, folder / "w.safetensors")
    weights = [(folder / "w.safetensors").read_bytes()]
    fuzz.add("weights", "w.safetensors", weights, lambda path: load_weights(model, path), resealed_weights)
    fuzz.add("checkpoint", "checkpoint.pt", [whole["checkpoint"]], read_checkpoint, resealed)
    fuzz.add("snapshots", "snapshots.npz", [whole["snapshots.npz"]], read_snapshots)
    fuzz.add("run.json to a page", "page/run.json", [whole["run.json"]], _page, changed_json)
    for name in ("history.jsonl", "updates.jsonl"):
        fuzz.add(name, f"run/{name}", [whole[name]], lambda path: collect([path.parent]), changed_json)
        (run / name).write_bytes(whole[name])
