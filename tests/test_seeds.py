import torch

from ldmnet.seeds import derive_seed, generator


def test_each_use_of_a_seed_has_its_own_stream():
    uses = ("subset", "init", "batches", "dropout")
    assert len({derive_seed(seed, use) for seed in range(5) for use in uses}) == 20


def test_a_stream_is_the_same_every_time():
    a, b = (torch.rand(5, generator=generator(3, "init")) for _ in range(2))
    assert torch.equal(a, b)
    assert derive_seed(0, "batches") == derive_seed(0, "batches")


def test_a_derived_seed_is_one_that_torch_takes():
    assert all(0 <= derive_seed(seed, "init") < 2**63 for seed in (0, 1, -1, 10**12))
