"""Preprocessing: the statistics are those of the training images, and each kind does what it says."""

from __future__ import annotations

import re

import pytest
import torch

from ldmnet.data import fit_preprocess
from ldmnet.errors import InputError

KINDS = ("mean_image", "standard", "contrast", "local_contrast")


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


def pictures(n: int = 60, shape: tuple[int, int, int] = (3, 4, 5), seed: int = 0) -> torch.Tensor:
    """Smooth, so that neighbouring pixels are correlated."""
    noise = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (noise.cumsum(2).cumsum(3) * 255 / (shape[1] * shape[2])).to(torch.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_only_training_images_give_the_statistics(kind):
    x, others = pictures(), pictures(30, seed=1)
    prepare = fit_preprocess(x, kind)
    alone = prepare(others[:1])
    assert torch.allclose(prepare(others)[:1], alone, atol=1e-5)  # no image depends on those beside it
    out = prepare(x)
    assert out.dtype == torch.float32
    assert out.shape == x.shape
    assert prepare(x[:0]).shape == (0, 3, 4, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_scale_divides_the_result(kind):
    x = pictures()
    assert torch.allclose(fit_preprocess(x, kind, 1.0)(x), 64 * fit_preprocess(x, kind, 64)(x), atol=1e-4)


@pytest.mark.parametrize("kind", ["mean_image", "contrast", "local_contrast"])
def test_the_mean_image_of_the_training_images_is_zero(kind):
    x = pictures()
    assert fit_preprocess(x, kind)(x).mean(0).abs().max() < 1e-4


def test_mean_image_keeps_the_pixels_units():
    x = pictures()
    out = fit_preprocess(x, "mean_image")(x)
    difference = x[3].float() - x[4].float()
    assert torch.allclose(out[3] - out[4], difference, atol=1e-4)
    assert torch.allclose(out[0], (x[0].double() - x.double().mean(0)).float(), atol=1e-4)


def test_standard_gives_every_channel_mean_zero_and_deviation_one():
    x = pictures()
    x[:, 1] //= 3
    out = fit_preprocess(x, "standard")(x)
    assert out.mean((0, 2, 3)).abs().max() < 1e-5
    assert torch.allclose(out.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_standard_survives_a_constant_channel():
    x = pictures()
    x[:, 2] = 7
    assert (fit_preprocess(x, "standard")(x)[:, 2] == 0).all()


def test_contrast_by_hand():
    x = torch.tensor([[0, 100], [50, 50]], dtype=torch.uint8).reshape(2, 1, 1, 2)
    out = fit_preprocess(x, "contrast")(x).flatten(1)
    edge = 50 / (50 + 10)  # deviation 50 of the first image; the second is flat
    assert torch.allclose(out, torch.tensor([[-edge / 2, edge / 2], [edge / 2, -edge / 2]]))


def test_contrast_takes_brightness_away():
    x = pictures() // 2
    prepare = fit_preprocess(x, "contrast")
    assert torch.allclose(prepare(x), prepare(x + 100), atol=1e-5)


def test_statistics_do_not_depend_on_the_chunk(monkeypatch):
    x = pictures()
    whole = fit_preprocess(x, "contrast")(x)
    monkeypatch.setattr("ldmnet.data.preprocess.CHUNK", 7)
    assert torch.allclose(fit_preprocess(x, "contrast")(x), whole, atol=1e-5)


def test_local_contrast_by_hand():
    """One row of pixels: a weighted mean over the surroundings, edges repeated."""
    row = torch.tensor([10, 200, 30, 90, 60], dtype=torch.uint8)
    x = torch.stack([row, row // 2]).reshape(2, 1, 1, 5)
    weight = [2.718281828459045 ** (-(d**2) / 8) for d in range(-4, 5)]

    def blur(values):
        padded = [values[0]] * 4 + values + [values[-1]] * 4
        return [sum(w * padded[i + j] for j, w in enumerate(weight)) / sum(weight) for i in range(len(values))]

    def by_hand(values):
        centred = [v - b for v, b in zip(values, blur(values), strict=True)]
        deviation = [b**0.5 for b in blur([c * c for c in centred])]
        return torch.tensor([c / (d + 10) for c, d in zip(centred, deviation, strict=True)])

    first, second = by_hand([float(v) for v in row]), by_hand([float(v) for v in row // 2])
    out = fit_preprocess(x, "local_contrast")(x).flatten(1)
    torch.testing.assert_close(out[0], (first - second) / 2, atol=1e-5, rtol=1e-4)


def test_local_contrast_takes_slow_changes_of_light_away():
    x = pictures(shape=(3, 24, 24)) // 4 + 60
    shade = torch.linspace(0, 60, 24).to(torch.uint8).expand(24, 24)
    both = [fit_preprocess(x, kind)(x + shade) - fit_preprocess(x, kind)(x) for kind in ("local_contrast", "contrast")]
    local, whole = (difference[..., 4:-4].abs().mean() for difference in both)
    assert local < 0.3 * whole


def test_a_flat_image_is_not_blown_up():
    x = pictures()
    flat = torch.full((1, 3, 4, 5), 128, dtype=torch.uint8)
    assert fit_preprocess(x, "contrast")(flat).abs().max() < 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: fit_preprocess(pictures(), "whiten"),
            "there is no preprocessing 'whiten'. Choose one of mean_image, standard, contrast, local_contrast.",
        ),
        (lambda: fit_preprocess(pictures(), scale=0.0), "scale must be above zero and finite, got 0.0."),
        (
            lambda: fit_preprocess(pictures().float()),
            "images must be uint8 (n, channels, height, width), got torch.float32 (60, 3, 4, 5).",
        ),
        (lambda: fit_preprocess(pictures()[:0]), "x_train has no images to take statistics of."),
        (
            lambda: fit_preprocess(pictures())(pictures(shape=(1, 4, 5))),
            "images have shape (1, 4, 5) but the training images had (3, 4, 5).",
        ),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(InputError, match=says(words)):
        call()
