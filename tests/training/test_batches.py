"""Sweeps over data sets and loaders: their order, their workers, and what of a batch reaches the network."""

import collections
import multiprocessing

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    random_split,
)

from clouds import cloud
from ldmnet import IndexedDataset, sweep
from ldmnet.errors import InputError
from ldmnet.networks import initialize, mlp
from ldmnet.training.batches import moved

N = 23


def network():
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    return model


def inputs():
    return cloud(N, 6, dtype=torch.float32)


def pairs():
    return TensorDataset(inputs(), torch.arange(N))


def test_indexed_dataset_says_which_sample_it_gives():
    x, y = inputs(), torch.arange(23)
    data = IndexedDataset(TensorDataset(x, y))
    assert len(data) == 23
    index, x4, y4 = data[4]
    assert index == y4 == 4
    assert torch.equal(x4, x[4])
    for index, x_b, y_b in DataLoader(data, batch_size=5, shuffle=True):
        assert torch.equal(index, y_b)
        assert torch.equal(x_b, x[index])


@pytest.mark.parametrize("dataset", [pairs(), IndexedDataset(pairs()), [*inputs()], TensorDataset(inputs())])
def test_a_data_set_gives_the_features_of_its_tensor(dataset):
    model = network()
    whole = sweep(model, inputs(), layer="features")
    torch.testing.assert_close(sweep(model, dataset, layer="features", batch_size=5), whole)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True)
    torch.testing.assert_close(sweep(model, loader, layer="features"), whole)
    torch.testing.assert_close(sweep(model, loader), sweep(model, inputs()))


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.sizes = []

    def forward(self, x):
        self.sizes.append(len(x))
        return x


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"batch_size": 10, "shuffle": True}, [10, 10, 3]),
        ({"batch_sampler": BatchSampler(RandomSampler(range(N)), 9, True)}, [9, 9, 5]),
        ({"batch_sampler": [[0, 5], [7]]}, [20, 3]),
    ],
)
def test_the_loader_gives_the_size_of_batches_and_nothing_of_its_order(options, sizes):
    model = Counted()
    assert torch.equal(sweep(model, DataLoader(pairs(), **options), batch_size=20), inputs())
    assert model.sizes == sizes


class Worked(Dataset):
    """Says in which process each sample was read, and what the worker was told at its start."""

    told = -1.0

    def __len__(self):
        return 8

    def __getitem__(self, i):
        worker = torch.utils.data.get_worker_info()
        return torch.tensor([i, -1.0 if worker is None else worker.id, Worked.told])


def tell(worker):
    Worked.told = 5.0


def doubled(samples):
    return 2 * torch.stack(samples)


@pytest.mark.parametrize("persistent", [False, True])
def test_the_loaders_workers_read(persistent):
    options = {"worker_init_fn": tell, "collate_fn": doubled, "persistent_workers": persistent}
    context = multiprocessing.get_context("fork")
    loader = DataLoader(Worked(), 2, shuffle=True, num_workers=2, multiprocessing_context=context, **options)
    found = sweep(nn.Identity(), loader)
    assert found[:, 0].tolist() == [2.0 * i for i in range(8)]
    assert set(found[:, 1].tolist()) == {0.0, 2.0}
    assert set(found[:, 2].tolist()) == {10.0}
    assert sorted(x[0].item() / 2 for batch in loader for x in batch) == list(range(8))  # the loader is still usable


def test_a_sweep_draws_no_random_numbers():
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(pairs(), 5, shuffle=True, generator=own)
    before = torch.get_rng_state(), own.get_state()
    sweep(nn.Identity(), loader)
    sweep(nn.Identity(), pairs())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(own.get_state(), before[1])


def test_a_part_is_in_its_own_order():
    x, part = inputs(), [7, 3, 20]
    wanted = x[part]
    assert torch.equal(sweep(nn.Identity(), Subset(pairs(), part)), wanted)
    assert torch.equal(sweep(nn.Identity(), IndexedDataset(Subset(pairs(), part))), wanted)
    assert torch.equal(sweep(nn.Identity(), Subset(IndexedDataset(pairs()), range(5))), x[:5])  # counts from 0: fits


def test_a_part_that_is_numbered_as_the_whole_is_refused(says):
    part = Subset(IndexedDataset(pairs()), [0, 1, 20])
    for data in (part, DataLoader(part, batch_size=2), Subset(part, [0, 1, 2])):
        with says(InputError):
            sweep(nn.Identity(), data)
    halves = random_split(IndexedDataset(pairs()), [0.5, 0.5], torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="counts the samples of another one"):
        sweep(nn.Identity(), halves[0])
    with pytest.raises(InputError, match="sample 23 of the data set comes with the index 0,"):
        sweep(nn.Identity(), ConcatDataset([IndexedDataset(pairs()), IndexedDataset(pairs())]))


class Named(nn.Module):
    """Takes tokens by name, as Hugging Face's models do, and gives several things by name."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.body = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask=None):
        assert input_ids.dtype == torch.int64
        return {"logits": self.body((self.embed(input_ids) * attention_mask[..., None]).mean(1))}


def rows(extra=()):
    draw = torch.Generator().manual_seed(0)
    tokens, mask = torch.randint(0, 9, (N, 5), generator=draw), torch.ones(N, 5)
    labels = {"labels": 1, "label": 2, "sample_index": 3, **dict(extra)}
    return [{"input_ids": t, "attention_mask": m, **labels} for t, m in zip(tokens, mask, strict=True)]


def test_a_batch_by_name_goes_to_the_model_without_its_labels(says):
    model = Named()
    ids = torch.stack([row["input_ids"] for row in rows()])
    wanted = model.body(model.embed(ids).mean(1)).detach()
    torch.testing.assert_close(sweep(model, rows(), layer="body"), wanted)
    torch.testing.assert_close(sweep(model, IndexedDataset(rows()), layer="body", batch_size=4), wanted)
    with says(InputError):
        sweep(model, rows())


def test_batches_that_say_nothing_of_the_input(says):
    with says(InputError):
        sweep(Named(), rows({"note": "long"}), layer="body")
    nested = [((x, x), 0) for x in inputs()]
    with says(InputError):
        sweep(network(), nested)
    with says(InputError):
        sweep(network(), [f"sample {i}" for i in range(4)])


def test_forward_says_it():
    model, x = network(), inputs()
    images = [{"image": image, "note": "kept out", "labels": 0} for image in x]
    swept = sweep(model, images, layer="features", forward=lambda model, batch: model(batch["image"]))
    torch.testing.assert_close(swept, sweep(model, x, layer="features"))
    own = sweep(model, IndexedDataset(pairs()), forward=lambda model, batch: model.features(batch[1]))
    torch.testing.assert_close(own, swept)
    torch.testing.assert_close(sweep(model, x, forward=lambda model, batch: model.features(batch)), swept)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(inputs())


class Endless(Dataset):
    def __getitem__(self, i):
        return torch.zeros(6)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Stream(), "Stream is an IterableDataset, whose samples have no order and no number"),
        (DataLoader(Stream()), "Stream is an IterableDataset, whose samples have no order and no number"),
        (Endless(), "Endless has no length: give it __len__, or keep the samples in a list."),
        (IndexedDataset(Stream()), "IndexedDataset has no length: give it __len__, or keep the samples in a list."),
        (
            inputs().numpy(),
            "a sweep needs a tensor, a data set or a DataLoader, got a ndarray. Make a tensor of",
        ),
        ((inputs(), torch.arange(N)), "a sweep needs a tensor, a data set or a DataLoader, got a tuple."),
        (None, "a sweep needs a tensor, a data set or a DataLoader, got a NoneType."),
        (torch.tensor(3.0), "a sweep needs samples (n, ...), got a single number."),
        (DataLoader(pairs(), batch_size=None), "the loader has batch_size=None and leaves batches to its data set"),
        ([], "the data set is empty: there is nothing to sweep."),
        (DataLoader([]), "the data set is empty: there is nothing to sweep."),
        (TensorDataset(torch.zeros(0, 6)), "the data set is empty: there is nothing to sweep."),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_data_without_an_order_are_refused_in_words(data, words):
    with pytest.raises(InputError) as error:
        sweep(network(), data)
    assert str(error.value).startswith(words)


def test_the_size_of_batches_is_checked(says):
    with says(InputError):
        sweep(network(), inputs(), batch_size=0)


def test_features_that_do_not_fit_together(says):
    lengths = [torch.zeros(1 + i % 2, 6) for i in range(4)]
    with says(InputError):
        sweep(nn.Identity(), DataLoader(lengths, batch_size=1))
    for forward in (lambda model, batch: batch[:1], lambda model, batch: batch.repeat(2, 1)):
        with says(InputError):
            sweep(nn.Identity(), inputs(), batch_size=20, forward=forward)


def test_everything_in_a_batch_is_moved():
    Pair = collections.namedtuple("Pair", "a b")
    meta, t = torch.device("meta"), torch.zeros(2)
    batch = moved({"x": [t, (t, "word")], "pair": Pair(t, 3)}, meta)
    assert batch["x"][0].device == batch["x"][1][0].device == batch["pair"].a.device == meta
    assert batch["x"][1][1] == "word"
    assert isinstance(batch["pair"], Pair)
    assert sweep(network().to("meta"), pairs(), layer="features").device == meta
