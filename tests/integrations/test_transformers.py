import pytest
import torch
from torch import nn

from clouds import cloud
from ldmnet.errors import InputError, StateError
from ldmnet.strength import COUPLING
from scorer import Scorer

pytest.importorskip("transformers", reason="the extra transformers is not installed")
pytest.importorskip("accelerate", reason="the extra transformers is not installed")

from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

from ldmnet.integrations.transformers import ManifoldMixin, ManifoldTrainer

pytestmark = pytest.mark.slow

SETTINGS = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": 6, "sigma_neighbor": 4}


def rows(labels="labels"):
    y = torch.arange(40) % 3
    x = cloud(40, 6, dtype=torch.float32) + 2 * torch.eye(6)[y]
    return [{"values": v, labels: int(c), "a_note": "kept out"} for v, c in zip(x, y, strict=True)]


NOTHING = object()


def trainer(
    folder,
    kind=ManifoldTrainer,
    *,
    dataset=None,
    settings=None,
    groups=None,
    inputs=None,
    data_collator=None,
    **options,
):
    arguments = TrainingArguments(
        str(folder),
        **{"num_train_epochs": 4, "per_device_train_batch_size": 10, "save_strategy": "no", **options},
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        train_sampling_strategy="sequential",
    )
    ours = {"layer": "net.features", "settings": settings or SETTINGS, "groups": groups, "inputs": inputs}
    dataset = None if dataset is NOTHING else rows() if dataset is None else dataset
    ours = ours if kind is not Trainer else {}
    return kind(Scorer(), arguments, train_dataset=dataset, data_collator=data_collator, **ours)


def weights(trained):
    return nn.utils.parameters_to_vector(trained.model.parameters()).detach()


def test_the_penalty_is_in_the_gradient_and_not_in_the_evaluation(tmp_path):
    plain, pulled, idle = (
        trainer(tmp_path, kind, settings=settings)
        for kind, settings in (
            (Trainer, None),
            (ManifoldTrainer, None),
            (ManifoldTrainer, {"mu": 1e-12, "lambda_tilde": 0}),
        )
    )
    for each in (plain, pulled, idle):
        each.train()
    torch.testing.assert_close(weights(idle), weights(plain))
    assert not torch.allclose(weights(pulled), weights(plain), atol=1e-4)
    assert len(pulled.regularizer.log) == 2
    plain.model.load_state_dict(pulled.model.state_dict())
    assert pulled.evaluate(rows())["eval_loss"] == plain.evaluate(rows())["eval_loss"]


def test_inputs_enter_the_graph(tmp_path):
    given = trainer(tmp_path, inputs=torch.stack([row["values"] for row in rows()]))
    given.train()
    without = trainer(tmp_path)
    without.train()
    assert not torch.equal(given.regularizer.target, without.regularizer.target)


def test_accumulated_batches_are_one_large_batch(tmp_path):
    small = trainer(tmp_path, per_device_train_batch_size=5, gradient_accumulation_steps=4)
    large = trainer(tmp_path, per_device_train_batch_size=20)
    small.train()
    large.train()
    torch.testing.assert_close(weights(small), weights(large), atol=1e-5, rtol=1e-5)


def test_a_mixin_serves_another_trainer(tmp_path):
    class Doubled(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **rest):
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **rest)
            return (2 * loss, outputs) if return_outputs else 2 * loss

    class Mine(ManifoldMixin, Doubled):
        pass

    trained = trainer(tmp_path, Mine)
    trained.train()
    assert len(trained.regularizer.log) == 2


@pytest.mark.parametrize("last", [True, False])
def test_a_checkpoint_brings_the_targets_back(tmp_path, last):
    whole = trainer(tmp_path / "whole", num_train_epochs=5)
    whole.train()
    part = trainer(tmp_path / "part", num_train_epochs=5, save_strategy="steps", save_steps=10, max_steps=10)
    part.train()  # two epochs and a half
    resumed = trainer(tmp_path / "part", num_train_epochs=5)
    resumed.train(resume_from_checkpoint=True if last else str(tmp_path / "part" / "checkpoint-10"))
    assert len(resumed.regularizer.log) == 3
    torch.testing.assert_close(resumed.regularizer.target, whole.regularizer.target)
    torch.testing.assert_close(weights(resumed), weights(whole))


def test_a_checkpoint_without_the_state_is_refused(tmp_path, says):
    plain = trainer(tmp_path, Trainer, save_strategy="epoch")
    plain.train()
    with says(StateError):
        trainer(tmp_path).train(resume_from_checkpoint=True)


def test_the_sweep_does_not_take_the_place_of_the_evaluation(tmp_path):
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    trained = trainer(tmp_path, num_train_epochs=1, **workers)
    trained.eval_dataset = rows()[:5]
    trained.train()
    assert sum(len(batch["labels"]) for batch in trained.get_eval_dataloader()) == 5


def test_a_collator_that_keeps_what_it_knows(tmp_path):
    def collate(batch):
        assert all(set(row) <= {"values", "labels", "a_note"} for row in batch)
        return {
            "values": torch.stack([row["values"] for row in batch]),
            "labels": torch.tensor([row["labels"] for row in batch]),
        }

    plain, own = trainer(tmp_path), trainer(tmp_path, data_collator=collate)
    plain.train()
    own.train()
    assert torch.equal(weights(own), weights(plain))


def test_a_trainer_that_only_evaluates(tmp_path, says):
    made = trainer(tmp_path, dataset=NOTHING)
    assert made.evaluate(rows())["eval_loss"] > 0
    with says(InputError):
        made.train()


def test_a_batch_without_its_numbers_is_refused(tmp_path):
    made = trainer(tmp_path)
    made.data_collator = lambda batch: {
        "values": torch.stack([row["values"] for row in batch]),
        "labels": torch.tensor([row["labels"] for row in batch]),
    }
    made.swept_features = lambda: torch.zeros(40, 8)
    with pytest.raises(InputError, match="a batch came without sample_index"):
        made.train()


def test_a_search_keeps_the_state_in_each_trials_folder(tmp_path):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    made = trainer(tmp_path, num_train_epochs=1, save_strategy="epoch")
    made.eval_dataset, made.model_init = rows(), lambda trial: Scorer()
    made.hyperparameter_search(
        lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 0.01, 0.02)}, backend="optuna", n_trials=1
    )
    assert (tmp_path / "run-0" / "checkpoint-4" / "ldmnet.pt").exists()


def test_labels_are_found_or_asked_for(tmp_path, says):
    assert trainer(tmp_path, dataset=rows("label"))._groups.tolist() == [i % 3 for i in range(40)]
    with says(InputError):
        trainer(tmp_path, dataset=rows("sort"))
    assert trainer(tmp_path, dataset=rows("sort"), groups=torch.zeros(40, dtype=torch.int64))._groups.sum() == 0


def test_a_label_that_is_no_class_is_refused(tmp_path):
    vectors = [{**row, "labels": [0, 1]} for row in rows()]
    fractions = [{**row, "labels": 0.7 + row["labels"]} for row in rows()]
    for dataset in (vectors, fractions):
        with pytest.raises(InputError, match="a row's labels are not one whole number"):
            trainer(tmp_path, dataset=dataset)


def test_the_sweep_leaves_no_sample_out(tmp_path):
    made = trainer(tmp_path, dataloader_drop_last=True, per_device_eval_batch_size=33)
    x = torch.stack([row["values"] for row in rows()])
    made.model.train()
    torch.testing.assert_close(made.swept_features(), made.model.net.features(x).detach())
    assert made.model.training
    made.train()
    assert len(made.regularizer.log) == 2


def test_groups_may_be_words(tmp_path):
    names = ["ant", "bee", "cat"]
    by_name, by_number = trainer(tmp_path, groups=[names[i % 3] for i in range(40)]), trainer(tmp_path)
    by_name.train()
    by_number.train()
    assert torch.equal(weights(by_name), weights(by_number))


def test_every_update_is_logged(tmp_path):
    trained = trainer(tmp_path)
    trained.train()
    logged = [entry for entry in trained.state.log_history if "ldmnet/move" in entry]
    assert [entry["epoch"] for entry in logged] == [0, 2]
    for entry, update in zip(logged, trained.regularizer.log, strict=True):
        assert {name: entry[name] for name in entry if name.startswith("ldmnet/")} == update.scalars()


def test_a_model_of_tokens_needs_no_number(tmp_path):
    config = DistilBertConfig(vocab_size=30, max_position_embeddings=8, dim=16, n_heads=2, n_layers=1, hidden_dim=32,
                              num_labels=3)  # fmt: skip
    torch.manual_seed(0)
    model = DistilBertForSequenceClassification(config)
    y = torch.arange(60) % 3
    tokens = torch.randint(0, 10, (60, 8), generator=torch.Generator().manual_seed(0)) + 10 * y[:, None]
    trained = ManifoldTrainer(
        model,
        TrainingArguments(
            str(tmp_path),
            num_train_epochs=20,
            learning_rate=5e-3,
            per_device_train_batch_size=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": row, "labels": int(c)} for row, c in zip(tokens, y, strict=True)],
        layer="pre_classifier",
    )
    trained.train()
    log = trained.regularizer.log
    assert len(log) == 10
    assert log[0].strength == 0
    assert log[-1].strength > 0.1  # the slow start has begun by itself
    assert log[-1].energy != 1  # and the graph takes part
    assert log[-1].lambda_tilde == pytest.approx(log[-1].mu / COUPLING)
    model.eval()
    assert (model(input_ids=tokens).logits.argmax(1) == y).all()


def test_a_training_too_short_for_the_pull_is_told(tmp_path):
    trained = trainer(tmp_path, settings={"strength": 0.3}, num_train_epochs=1)
    with pytest.warns(UserWarning, match=r"^the regulariser was not in force: in 1 update its pull"):
        trained.train()
