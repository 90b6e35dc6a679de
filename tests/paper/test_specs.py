"""The paper's tables, typed a second time from the paper, row by row."""

import pytest

from ldmnet.paper import specs

MNIST_HYPER = """
50 & 0.05 & 0.01 & 0.1
100 & 0.05 & 0.01 & 0.05
400 & 0.01 & 0.01 & 0.01
700 & 0.01 & 0.01 & 0.005
1000 & 0.005 & 0.01 & 0.005
3000 & 0.001 & 0.01 & 0.001
6000 & 0.001 & 0.01 & 0.001
"""
MNIST_RESULT = """
50 & 91.32 & 92.31 & 95.57
100 & 93.38 & 94.05 & 96.73
400 & 97.23 & 97.95 & 98.41
700 & 97.67 & 98.07 & 98.61
1000 & 98.06 & 98.71 & 98.89
3000 & 98.87 & 99.21 & 99.24
6000 & 99.15 & 99.41 & 99.39
"""
SVHN_CIFAR_HYPER = """
50 & 0.1 & 1e-6 & 0.01 & 5e-4
100 & 0.05 & 1e-6 & 0.01 & 5e-5
400 & 0.05 & 1e-7 & 0.01 & 5e-5
700 & 0.01 & 1e-8 & 0.01 & 5e-7
"""
SVHN_RESULT = """
50 & 71.46 & 71.94 & 74.64
100 & 79.05 & 79.94 & 81.36
400 & 87.38 & 87.16 & 88.03
700 & 89.69 & 89.83 & 90.07
"""
CIFAR_RESULT = """
50 & 34.70 & 35.94 & 41.55
100 & 42.45 & 43.18 & 48.73
400 & 56.19 & 56.79 & 60.08
700 & 61.84 & 62.59 & 65.59
"""


def numbers(text: str) -> list[list[float]]:
    return [[float(cell) for cell in line.split("&")] for line in text.strip().splitlines()]


def results(table: specs.PaperTable) -> list[list[float]]:
    methods = ("weight_decay", "dropout", "ldmnet")
    return [[row.per_class, *(row.accuracy[m] for m in methods)] for row in table.rows]


def test_mnist_hyperparameters():
    assert [[r.per_class, r.lambda_tilde, r.mu, r.w] for r in specs.MNIST.rows] == numbers(MNIST_HYPER)


def test_svhn_and_cifar_hyperparameters():
    svhn = [[r.per_class, r.lambda_tilde, r.w] for r in specs.SVHN.rows]
    cifar = [[r.lambda_tilde, r.w] for r in specs.CIFAR10.rows]
    assert [a + b for a, b in zip(svhn, cifar, strict=True)] == numbers(SVHN_CIFAR_HYPER)
    assert {r.mu for r in specs.SVHN.rows} == {0.5}
    assert {r.mu for r in specs.CIFAR10.rows} == {1.0}


@pytest.mark.parametrize(
    ("table", "text"), [(specs.MNIST, MNIST_RESULT), (specs.SVHN, SVHN_RESULT), (specs.CIFAR10, CIFAR_RESULT)]
)
def test_printed_accuracies(table, text):
    assert results(table) == numbers(text)


def test_learning_rates_and_schedule():
    assert (specs.MNIST.lr, specs.SVHN.lr, specs.CIFAR10.lr) == (0.001, 0.005, 0.001)
    assert (specs.EPOCHS, specs.BATCH_SIZE, specs.MOMENTUM, specs.DROPOUT) == (300, 100, 0.9, 0.5)
    assert (specs.N_NEIGHBORS, specs.SIGMA_NEIGHBOR, specs.EPOCHS_PER_UPDATE, specs.MAX_PRODUCTS) == (20, 10, 2, 50)


def test_vgg_and_faces():
    assert (specs.VGG16_BASE, specs.VGG16_LDMNET) == (87.72, 88.21)
    faces = specs.NIR_VIS
    assert (faces.lambda_tilde, faces.mu, faces.w, faces.lr, faces.lr_decay) == (5e-5, 5, 5e-4, 0.1, 0.99)
    assert (faces.epochs, faces.batch_size, faces.width, faces.folds) == (200, 100, 2000, 10)
    rank1 = [faces.pca, faces.triplet, faces.low_rank, faces.weight_decay, faces.dropout, faces.ldmnet]
    assert rank1 == [(74.51, 1.28), (75.96, 2.9), (80.69, 1.02), (63.87, 1.33), (66.97, 1.31), (85.02, 0.86)]
