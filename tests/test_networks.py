import pytest
import torch
from torch import nn

from ldmnet.errors import InputError
from ldmnet.networks import cifar_net, embedding_net, initialize, mlp, mnist_net, residual_net, set_dropout, vgg16


def shapes(model):
    return [tuple(p.shape) for p in model.parameters() if p.ndim > 1]


def test_mnist_net_is_table_1():
    model = mnist_net()
    assert shapes(model) == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]
    kinds = [type(layer) for layer in model.features]
    assert kinds[:4] == [nn.Conv2d, nn.MaxPool2d, nn.Conv2d, nn.MaxPool2d]  # no ReLU after the first two
    assert kinds[-1] is nn.ReLU
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_cifar_net_is_table_4():
    model = cifar_net()
    assert shapes(model) == [(96, 3, 5, 5), (128, 96, 5, 5), (256, 128, 4, 4), (2048, 256), (2048, 2048), (10, 2048)]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    sides, x = [32], torch.zeros(1, 3, 32, 32)
    for layer in model.features:
        x = layer(x)
        if x.ndim == 4 and x.shape[-1] != sides[-1]:
            sides.append(x.shape[-1])
    assert sides == [32, 15, 7, 4, 1]


def test_embedding_net_is_table_8():
    assert shapes(embedding_net(4096, 357)) == [(2000, 4096), (2000, 2000), (357, 2000)]


def test_vgg16_has_thirteen_convolutions_five_pools_and_dropout_after_each_hidden_layer():
    model = vgg16()
    widths = [layer.out_channels for layer in model.features if isinstance(layer, nn.Conv2d)]
    assert widths == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in model.features) == 5
    kinds = [type(layer) for layer in model.features]
    assert kinds[-6:] == [nn.Flatten, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU]
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 32), (3, 96, 96), (2, 17, 29), (4, 16, 300), (3, 224, 224)])
def test_residual_net_takes_images_of_any_size(shape):
    model, sides = residual_net(shape, 5), []
    model.features[-5].register_forward_hook(lambda m, a, out: sides.append(out.shape[-2:]))
    x = torch.randn(2, *shape)
    assert model(x).shape == (2, 5)
    assert max(sides[0]) * min(sides[0]) <= 16 * 16  # the cost is bounded
    f = model.eval().features(x[:1])  # one sample will do
    assert f.shape == (1, 128)
    assert (f >= 0).all()
    assert model(x[:1]).shape == (1, 5)


def test_residual_net_is_wrn_16():
    model = residual_net((3, 32, 32), 10)
    assert sum(p.numel() for p in model.parameters()) == 691_674
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    widths = [16, *[32] * 5, *[64] * 5, *[128] * 5]  # a group's four and its shortcut
    assert [m.out_channels for m in convolutions] == widths
    assert [m.stride[0] for m in convolutions].count(2) == 4  # two groups halve, each with its shortcut
    kinds = [type(layer) for layer in model.features]
    assert kinds[-4:] == [nn.BatchNorm2d, nn.ReLU, nn.AdaptiveAvgPool2d, nn.Flatten]
    assert residual_net((3, 32, 32), 10, width=1).head.in_features == 64
    assert convolutions[1].weight.std().item() == pytest.approx((2 / (16 * 9)) ** 0.5, rel=0.05)


@pytest.mark.parametrize("shape", [(3, 15, 32), (784,), (28, 28)])
def test_residual_net_refuses_what_is_no_image_or_too_small(shape, says):
    with says(InputError):
        residual_net(shape, 3)


@pytest.mark.parametrize(
    ("model", "x", "d_feat"),
    [(mnist_net(7), torch.randn(3, 1, 28, 28), 500), (mlp(12, 7, (9, 5)), torch.randn(3, 3, 4), 5)],
)
def test_features_end_after_the_relu_and_before_dropout(model, x, d_feat):
    initialize(model, "he", 0)
    set_dropout(model, 0.9)
    model.dropout.train()
    model.features.eval()
    f = model.features(x)
    assert f.shape == (3, d_feat)
    assert (f >= 0).all()
    assert (f == 0).any()
    torch.testing.assert_close(model.features(x), f)  # the DropOut of 0.9 comes later
    model.eval()
    torch.testing.assert_close(model(x), model.head(f))
    assert model(x).shape == (3, 7)


def test_dropout_is_off_until_it_is_set():
    for model, count in (
        (mnist_net(), 1),
        (cifar_net(), 2),
        (vgg16(), 2),
        (residual_net((3, 16, 16), 2), 1),
        (mlp(4, 2, (8, 8, 8)), 3),
        (mlp(4, 2, (8,)), 1),
    ):
        rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
        assert rates == [0.0] * count
        assert set_dropout(model, 0.5) == count
        assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.5] * count
    assert set_dropout(nn.Linear(2, 2), 0.5) == 0


@pytest.mark.parametrize("scheme", ["gaussian", "xavier", "he", "torch"])
def test_initialization_depends_on_the_seed_alone(scheme):
    first, second, other = (mlp(6, 3, (20, 10)) for _ in range(3))
    torch.manual_seed(1)
    initialize(first, scheme, 5)
    kept = torch.get_rng_state()
    torch.manual_seed(2)
    initialize(second, scheme, 5)
    initialize(other, scheme, 6)
    for a, b, c in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.ndim == 1 or not torch.equal(a, c)
        assert a.requires_grad
    torch.manual_seed(1)
    assert torch.equal(kept, torch.get_rng_state())  # the global stream is left alone


def test_the_scale_of_each_initialization():
    model = mlp(400, 10, (500,))
    weight = model.features[1].weight.detach()
    for scheme, std in (("gaussian", 0.01), ("xavier", (2 / 900) ** 0.5), ("he", (2 / 400) ** 0.5)):
        initialize(model, scheme, 0)
        assert float(weight.std()) == pytest.approx(std, rel=0.02)
        assert float(weight.mean()) == pytest.approx(0, abs=0.01 * std)
        assert (model.features[1].bias == 0).all()
    initialize(model, "gaussian", 0, std=0.2)
    assert float(weight.std()) == pytest.approx(0.2, rel=0.02)
    initialize(model, "torch", 0)
    assert float(weight.abs().max()) == pytest.approx(400**-0.5, rel=0.01)
    assert 0 < model.features[1].bias.abs().max().item() <= 400**-0.5


def test_initialization_covers_convolutions():
    model = mnist_net()
    initialize(model, "gaussian", 0)
    assert model.features[0].weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert (model.features[0].bias == 0).all()


def test_initialization_unknown(says):
    with says(InputError):
        initialize(mlp(4, 2), "orthogonal", 0)


def test_an_mlp_without_hidden_layers(says):
    with says(InputError):
        mlp(4, 2, ())
