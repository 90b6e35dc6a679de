"""Pre-trained features as a way in: images or texts go through an encoder once, and are cached on disk.

An encoder is a model of `transformers` (extra `transformers`), by its folder or its name in the user's own cache, or
any function of a batch, `package.module:callable`: it is given uint8 images (b, c, h, w) or a list of texts and returns
features (b, d). Nothing is downloaded unless that is asked for.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from ldmnet.data.csvtables import LABEL_COLUMNS, cells_of, sorted_classes, table_lines
from ldmnet.data.samples import row_names
from ldmnet.data.userdata import TABLES, Samples, read_samples
from ldmnet.errors import DataError, InputError, missing_extra
from ldmnet.files import written_whole
from ldmnet.fingerprints import fingerprint, short_hash
from ldmnet.imported import imported

Inputs = Tensor | list[str]
SIDE = 224  # of images, where the encoder does not say


@dataclass(frozen=True)
class Encoding:
    """How features are computed; none of this changes them.

    Attributes:
        encode_batch: samples per pass through the encoder.
        online: allow transformers to download the encoder.
        device: where the encoder runs.
        cache: the folder of features that were computed; None takes $LDMNET_CACHE or ~/.cache/ldmnet.
    """

    encode_batch: int = 32
    online: bool = False
    device: str | None = None
    cache: Path | None = None

    @property
    def folder(self) -> Path:
        """Where features are kept."""
        return self.cache or Path(os.environ.get("LDMNET_CACHE", Path.home() / ".cache" / "ldmnet")) / "encoded"


@dataclass(frozen=True, eq=False)
class Encoder:
    """A function of a batch, what tells it from others, and the side of the images that it takes."""

    run: Callable[[Any], Tensor]
    fingerprint: str
    side: int = SIDE


def is_own_code(name: str) -> bool:
    """Whether an encoder's name is that of a function, package.module:callable."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and not Path(name).exists() and all(map(str.isidentifier, [*module.split("."), attribute]))


def load_encoder(name: str, kind: str, how: Encoding) -> Encoder:
    """The encoder of a name for "images" or "texts"."""
    return _own(name) if is_own_code(name) else _pretrained(name, kind, how)


def _own(name: str) -> Encoder:
    function, module = imported(name, "encoder")
    source = inspect.getsourcefile(module)
    code = Path(source).read_bytes() if source else b""
    return Encoder(function, short_hash([name, hashlib.sha256(code).hexdigest()]))


def _pretrained(name: str, kind: str, how: Encoding) -> Encoder:
    try:
        import transformers
    except ImportError as error:
        raise missing_extra("transformers with accelerate", "transformers") from error
    prepares = transformers.AutoImageProcessor if kind == "images" else transformers.AutoTokenizer
    try:
        model = transformers.AutoModel.from_pretrained(name, local_files_only=not how.online)
        prepare = prepares.from_pretrained(name, local_files_only=not how.online)
    except (OSError, ValueError, ImportError) as error:
        words = " ".join(str(error).split())[:300]
        where = "" if how.online else " Nothing is downloaded unless that is asked for."
        raise DataError(
            f"the encoder {name!r} cannot be loaded for {kind}: give a folder that transformers wrote, a name in its "
            f"cache, or package.module:callable.{where} It says: {words}"
        ) from error
    model = model.to(how.device or "cpu").eval()
    config = prepare.to_json_string() if kind == "images" else repr(prepare.init_kwargs.get("model_max_length"))
    weights = hashlib.sha256(config.encode())
    for key, value in sorted(model.state_dict().items()):
        weights.update(key.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)

    def images(batch: Tensor) -> Tensor:
        ready = prepare(images=list(batch.numpy()), input_data_format="channels_first", return_tensors="pt")
        found = model(**ready.to(model.device))
        pooled = getattr(found, "pooler_output", None)
        if pooled is None:  # maps (b, d, h, w), or words (b, words, d)
            hidden = found.last_hidden_state
            pooled = hidden.flatten(2).mean(2) if hidden.ndim == 4 else hidden.mean(1)
        flat: Tensor = pooled.flatten(1)
        return flat

    def texts(batch: list[str]) -> Tensor:
        ready = prepare(batch, padding=True, truncation=True, return_tensors="pt").to(model.device)
        hidden = model(**ready).last_hidden_state  # (b, words, d): their mean without the padding
        mask = ready["attention_mask"].unsqueeze(-1).to(hidden)
        mean: Tensor = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return mean

    size = getattr(prepare, "crop_size", None) or getattr(prepare, "size", None) or {}
    side = next((int(size[key]) for key in ("height", "shortest_edge") if size.get(key)), SIDE)
    return Encoder(images if kind == "images" else texts, weights.hexdigest()[:12], side)


def encoded(inputs: Inputs, encoder: Encoder, how: Encoding) -> Tensor:
    """The features (n, d) of images or texts, from the cache where they are there."""
    if how.encode_batch < 1:
        raise InputError(f"encode_batch must be at least 1, got {how.encode_batch}.")
    what = fingerprint(inputs) if isinstance(inputs, Tensor) else short_hash(inputs)
    place = how.folder / f"{short_hash([what, encoder.fingerprint])}.npy"
    if place.exists():
        try:
            kept = np.load(place, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{place} cannot be read: {error}. Delete it.") from error
        return torch.from_numpy(kept)
    if isinstance(inputs, Tensor):
        order = torch.arange(len(inputs))
    else:  # texts of like length together: a batch is padded to its longest
        order = torch.tensor([len(text) for text in inputs]).argsort(stable=True)
    batches = torch.split(order, how.encode_batch)
    console = Console(stderr=True)
    parts = []
    with torch.inference_mode():
        for some in track(batches, "encoding", console=console, disable=not console.is_terminal):
            batch = inputs[some] if isinstance(inputs, Tensor) else [inputs[i] for i in some]
            found = torch.as_tensor(encoder.run(batch))
            if found.ndim != 2 or len(found) != len(batch):
                given = tuple(found.shape)
                raise InputError(f"an encoder returns features (b, d): for {len(batch)} samples it gave {given}.")
            parts.append(found.float().cpu())
    features = torch.cat(parts)[order.argsort()]
    if not bool(features.isfinite().all()):
        raise DataError("the encoder gave features that are NaN or infinite.")
    place.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(place) as whole, whole.open("wb") as file:
        np.save(file, features.numpy())
    return features


def encoded_images(pixels: Tensor, name: str, *, how: Encoding | None = None, cache: Path | None = None) -> Tensor:
    """The features of uint8 images (n, c, h, w) by an encoder's name."""
    how = replace(how or Encoding(), cache=cache) if cache is not None else how or Encoding()
    return encoded(_colour(pixels), load_encoder(name, "images", how), how)


def _colour(pixels: Tensor) -> Tensor:
    return pixels.expand(-1, 3, -1, -1).contiguous() if pixels.shape[1] == 1 else pixels


def read_encoded(
    path: Path,
    name: str,
    how: Encoding,
    *,
    label: str | None = None,
    text: str | None = None,
    labelled: bool = True,
) -> Samples:
    """Images or a column of texts as features.

    Args:
        path: a folder of images, an .npz file of images, or a table with a column of texts.
        name: the encoder's.
        how: how it runs.
        label: the table's label column.
        text: its column of texts; unless given, the one called text, or the only other one.
        labelled: whether labels must be there.
    """
    if path.is_file() and path.suffix.lower() in TABLES:
        texts, labels, used = _texts(path, label, text, labelled)
        x = encoded(texts, load_encoder(name, "texts", how), how)
        names = row_names(len(x))
        if labels is None:
            return Samples(x, None, [], names)
        words = sorted(set(labels))
        places, class_names = sorted_classes(words, path)
        if len(class_names) < 2:
            raise DataError(f"{path} has one class only, {class_names[0]!r}. A classifier needs two or more.")
        code = dict(zip(words, places.tolist(), strict=True))
        y = torch.tensor([code[word] for word in labels])
        return Samples(x, y, class_names, names, label=used)
    encoder = load_encoder(name, "images", how)
    shape = None if labelled else (3, encoder.side, encoder.side)
    samples = read_samples(path, size=encoder.side if path.is_dir() else None, shape=None if path.is_file() else shape)
    if samples.x.dtype != torch.uint8 or samples.x.ndim != 4:
        raise DataError(f"{path} holds no images: an encoder takes images of 0 to 255, or a table with a text column.")
    return replace(samples, x=encoded(_colour(samples.x), encoder, how))


def _texts(
    path: Path, label: str | None, text: str | None, labelled: bool
) -> tuple[list[str], list[str] | None, str | None]:
    """The texts of a table with a header, its labels, and the name of their column."""
    lines, separator, head = table_lines(path)
    if len(lines) < 2:
        raise DataError(f"{path} holds no texts below a header.")
    body = [cells_of(line, separator) for line in lines[1:]]
    if short := next((i for i, row in enumerate(body, 1) if len(row) != len(head)), None):
        raise DataError(f"{path}, row {short}: {len(body[short - 1])} cells where there should be {len(head)}.")
    labels = _column(head, label, LABEL_COLUMNS, path, "label", needed=labelled)
    words = _column([h for h in head if h != labels], text, ("text",), path, "text", needed=True)
    assert words is not None
    texts = [row[head.index(words)] for row in body]
    return texts, None if labels is None else [row[head.index(labels)] for row in body], labels


def _column(
    head: Sequence[str], given: str | None, known: Sequence[str], path: Path, what: str, *, needed: bool
) -> str | None:
    if given is not None:
        if given in head:
            return given
        if not needed:
            return None
        raise DataError(f"{path} has no column {given!r}. Its columns: {', '.join(head)}.")
    found = next((name for word in known for name in head if name.lower() == word), None)
    if found is None and what == "text" and len(head) == 1:
        return head[0]
    if found is None and needed:
        raise DataError(
            f"{path}: which column holds the {what}s is not known. Its columns: {', '.join(head)}. Name it: {what}."
        )
    return found
