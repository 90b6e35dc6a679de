"""Run by torchrun: Lightning or Hugging Face with LDMNet by all processes; each writes what it ended with."""

import atexit
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from ended import threads_left
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ldmnet import IndexedDataset
from ldmnet.networks import initialize, mlp

SETTINGS = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": 6, "sigma_neighbor": 4}


def data(n=41):
    y = torch.arange(n) % 3
    draw = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=draw) + 2 * torch.eye(6)[y], y


def with_lightning(folder):
    from lightning.pytorch import LightningModule, Trainer

    from ldmnet.integrations.lightning import ManifoldCallback

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.BatchNorm1d(6), mlp(6, 3, (16, 8)))
            initialize(self.net, "he", 0)

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, batch_index):
            return cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    callback, module = ManifoldCallback(layer="net.1.features", **SETTINGS), Module()
    trainer = Trainer(
        max_epochs=4,
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        callbacks=[callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, DataLoader(IndexedDataset(TensorDataset(*data())), batch_size=8, shuffle=True))
    return callback.regularizer, module


def with_transformers(folder):
    from transformers import TrainingArguments

    from ldmnet.integrations.transformers import ManifoldTrainer

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from scorer import Scorer

    x, y = data()
    rows = [{"values": v, "labels": int(c)} for v, c in zip(x, y, strict=True)]
    arguments = TrainingArguments(
        folder, num_train_epochs=4, per_device_train_batch_size=8, save_strategy="epoch", report_to=[], use_cpu=True,
        disable_tqdm=True, learning_rate=0.05, optim="sgd", ddp_backend="gloo", save_total_limit=1,
    )  # fmt: skip
    trainer = ManifoldTrainer(Scorer(), arguments, train_dataset=rows, layer="net.features", settings=SETTINGS)
    trainer.train()
    return trainer.regularizer, trainer.model


if __name__ == "__main__":
    kind, folder = sys.argv[1:]
    torch.manual_seed(0)
    left = Path(folder, f"left-{os.environ['RANK']}.json")
    atexit.register(lambda: left.write_text(json.dumps(threads_left())))
    regularizer, model = {"lightning": with_lightning, "transformers": with_transformers}[kind](folder)
    rank = dist.get_rank()
    kept = [] if rank else Path(folder).rglob("*")  # the first process may still take old checkpoints away
    found = {
        "target": float(regularizer.target.double().sum()),
        "weights": float(sum(p.detach().double().sum() for p in model.parameters())),
        "steps": len(regularizer.log),
        "size": dist.get_world_size(),
        "files": sorted(str(p.relative_to(folder)) for p in kept if p.suffix in (".ckpt", ".pt")),
    }
    Path(folder, f"found-{rank}.json").write_text(json.dumps(found))
