import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ldmnet.errors import InputError
from ldmnet.matching import cosine_similarity, identify, verification_rate


def features(n, d=6, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_identical_features_are_all_identified():
    x, who = features(7), torch.arange(7)
    result = identify(x, who, x, who)
    assert result.rank1 == 1
    assert (result.n_probes, result.left_out) == (7, 0)
    assert result.verification == {0.01: 1.0, 0.001: 1.0}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 9), st.integers(1, 3))
def test_cmc_rises_to_one_and_has_one_entry_a_person(seed, n_probes, people, images):
    gallery_who = torch.arange(people).repeat(images)
    probe_who = torch.randint(people, (n_probes,), generator=torch.Generator().manual_seed(seed))
    result = identify(features(n_probes, seed=seed), probe_who, features(len(gallery_who), seed=seed + 1), gallery_who)
    assert result.cmc.shape == (people,)
    assert bool((result.cmc.diff() >= 0).all())
    assert float(result.cmc[-1]) == pytest.approx(1)
    assert result.rank1 == float(result.cmc[0])


def test_scaling_each_feature_vector_changes_nothing():
    probes, gallery = features(20), features(5, seed=1)
    who = torch.arange(20) % 5
    plain = identify(probes, who, gallery, torch.arange(5))
    scales = torch.linspace(0.01, 50, 20)[:, None]
    scaled = identify(probes * scales, who, gallery * 7, torch.arange(5))
    assert torch.equal(plain.cmc, scaled.cmc)
    assert plain.verification == scaled.verification


def test_the_order_of_the_gallery_changes_nothing():
    probes, gallery, who = features(20), features(10, seed=1), torch.arange(10) // 2
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    first = identify(probes, torch.arange(20) % 5, gallery, who)
    second = identify(probes, torch.arange(20) % 5, gallery[order], who[order])
    assert torch.equal(first.cmc, second.cmc)


def test_a_case_worked_by_hand():
    gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    probes = torch.tensor([[3.0, 1.0], [1.0, 0.9], [-2.0, -0.1], [0.0, 5.0]])
    who = torch.tensor([10, 20, 10, 99])  # first, second and last place; one whom nobody knows
    result = identify(probes, who, gallery, torch.tensor([10, 20, 30]))
    assert result.cmc.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert (result.n_probes, result.left_out) == (3, 1)


def test_verification_worked_by_hand():
    genuine = torch.tensor([0.95, 0.85, 0.5, 0.1])
    impostor = torch.arange(10) / 10.0  # 0.0 to 0.9
    assert verification_rate(genuine, impostor, 0.1) == 0.5  # one may pass: above 0.8
    assert verification_rate(genuine, impostor, 0.0) == 0.25  # none may: above 0.9
    assert verification_rate(genuine, impostor, 0.05) == 0.25
    assert verification_rate(genuine, impostor, 0.5) == 0.75  # five may: above 0.4
    assert verification_rate(genuine, impostor, 1.0) == 1.0
    assert verification_rate(genuine, impostor[:0], 0.1) is None


def test_tied_impostors_do_not_pass_the_false_accept_rate():
    assert verification_rate(torch.tensor([0.7, 0.9]), torch.tensor([0.7] * 10), 0.1) == 0.5


def test_a_person_counts_by_the_best_of_several_gallery_images():
    gallery = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.9, 0.5]])
    result = identify(torch.tensor([[-1.0, 0.1]]), torch.tensor([0]), gallery, torch.tensor([0, 0, 1]))
    assert result.rank1 == 1
    assert len(result.cmc) == 2


def test_collapsed_features_identify_nobody():
    for value in (0.0, 1.0):
        result = identify(torch.full((4, 3), value), torch.arange(4), torch.full((4, 3), value), torch.arange(4))
        assert result.rank1 == 0


def test_rounding_does_not_break_a_tie():
    same = torch.randn(1, 128, generator=torch.Generator().manual_seed(0))
    result = identify(same.expand(37, -1), torch.arange(37) % 13, same.expand(13, -1).clone(), torch.arange(13))
    assert result.rank1 == 0


def test_zero_vectors_have_cosine_zero():
    assert cosine_similarity(torch.zeros(1, 3), torch.ones(1, 3)).tolist() == [[0.0]]


def test_bad_features_are_named(says):
    x, who = features(4), torch.arange(4)
    broken = x.clone()
    broken[2:, 0] = torch.nan
    with says(InputError):
        identify(broken, who, x, who)
    with pytest.raises(InputError, match=r"^gallery features have NaN or infinite values in 2 of 4 rows"):
        identify(x, who, broken, who)
    with says(InputError):
        identify(x, who, x[:, :5], who)
    with says(InputError):
        identify(x, who + 9, x, who)
    with says(InputError):
        identify(x, who[:3], x, who)
    with pytest.raises(InputError, match=r"^gallery features must have shape \(n, d\) with n at least 1"):
        identify(x, who, x[:0], who[:0])
    with says(InputError):
        verification_rate(torch.ones(1), torch.ones(1), 2)
