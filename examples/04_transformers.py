"""LDMNet in Hugging Face's Trainer: a small vision transformer that learns from 30 images of each digit."""

import tempfile

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

from ldmnet.data import stratified
from ldmnet.integrations.transformers import ManifoldTrainer


def data(per_class: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels / 8 - 1, dtype=torch.float32), torch.as_tensor(labels)
    return x.reshape(-1, 1, 8, 8), y, stratified(y, per_class, seed=0)


def network() -> ViTForImageClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes))


def main(epochs: int = 8, **options: object) -> ManifoldTrainer:
    x, y, train = data()
    with tempfile.TemporaryDirectory() as folder:
        trainer = ManifoldTrainer(
            network(),
            TrainingArguments(
                folder,
                **{"learning_rate": 2e-3, "per_device_train_batch_size": 20, **options},
                num_train_epochs=epochs,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=[{"pixel_values": x[i], "labels": int(y[i])} for i in train],
            layer="vit.layernorm",
        )
        trainer.train()
    trainer.model.eval()
    with torch.no_grad():
        right = trainer.model(pixel_values=x).logits.argmax(1) == y
    print(f"{100 * right.double().mean():.1f} % of all {len(y)} images")
    return trainer


if __name__ == "__main__":
    main()
