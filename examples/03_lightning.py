"""LDMNet in Lightning: a callback and an indexed data set; the module knows nothing of it."""

import logging

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ldmnet import IndexedDataset, sweep
from ldmnet.data import stratified
from ldmnet.integrations.lightning import ManifoldCallback
from ldmnet.networks import initialize, mlp


class Classifier(LightningModule):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> Tensor:
        x, y = batch
        return cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def main(epochs: int = 6) -> ManifoldCallback:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels / 8 - 1, dtype=torch.float32), torch.as_tensor(labels)
    train = stratified(y, per_class=30, seed=0)
    network = mlp(64, 10, (256, 256))
    initialize(network, "he", seed=0)

    callback = ManifoldCallback(layer="network.features")
    loader = DataLoader(
        IndexedDataset(TensorDataset(x[train], y[train])),
        batch_size=20,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
    )
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[callback], **quiet).fit(Classifier(network), loader)
    print(f"{100 * (sweep(network, x).argmax(1) == y).double().mean():.1f} % of all {len(y)} images")
    return callback


if __name__ == "__main__":
    main()
