import copy
import io
import itertools
import warnings

import numpy as np
import pytest
import torch

from clouds import cloud, uneven_groups
from ldmnet import ManifoldRegularizer
from ldmnet.errors import InputError, NumericalWarning, StateError
from ldmnet.graph.neighbors import AUTO_FROM
from ldmnet.pim import grouped
from reference import ReferenceLDMNet

EXACT = {"tol": 1e-13, "max_steps": 500}
SMALL = {"n_neighbors": 8, "sigma_neighbor": 3}


@pytest.fixture(params=["direct", "iterative"])
def solver(request, monkeypatch):
    """Both ways to the solution: factorised blocks, and conjugate gradients."""
    if request.param == "iterative":
        monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)
    return request.param


@pytest.fixture
def _iterative(monkeypatch):
    monkeypatch.setattr(grouped, "DENSE_UP_TO", 0)


def pair(mass, mu, lambda_tilde, seed=0, **options):
    """The package's regulariser and the reference for one uneven data set, and features for three steps."""
    inputs, labels, features = uneven_groups(seed)
    ours = ManifoldRegularizer(
        torch.as_tensor(inputs),
        torch.as_tensor(labels),
        mu=mu,
        lambda_tilde=lambda_tilde,
        mass=mass,
        **SMALL,
        **EXACT,
        **options,
    )
    theirs = ReferenceLDMNet(inputs, labels, mu, lambda_tilde, mass, k=8, sigma_neighbor=3)
    return ours, theirs, features


def made(n=40, **options):
    options = {"mu": 0.5, "lambda_tilde": 1.0, **SMALL, **options}
    return ManifoldRegularizer(cloud(n, 6), torch.arange(n) % 3, **options)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("mass", "c"),
    [("consistent", 0.2), ("consistent", 1.0), ("consistent", 2.0)] + [("lumped", c) for c in (0.2, 1.0, 10.0, 1e3)],
)
def test_agrees_with_the_reference_over_three_steps(mass, c, seed, solver):
    ours, theirs, features = pair(mass, mu=0.3, lambda_tilde=0.3 / c, seed=seed)
    for f in features:
        update = ours.step(torch.as_tensor(f))
        theirs.step(f)
        assert update.status == "CONVERGED"
        for name in ("Z", "alpha", "target"):
            np.testing.assert_allclose(getattr(ours, name).numpy(), getattr(theirs, name), rtol=0, atol=1e-8)
    assert np.abs(theirs.Z).max() > 0.1  # the dual variable took part


def test_penalty_and_its_gradient_are_eqs_9_to_11():
    ours, theirs, features = pair("lumped", mu=0.3, lambda_tilde=1.5)
    for f in features[:2]:
        ours.step(torch.as_tensor(f))
        theirs.step(f)
    index = np.array([7, 0, 31, 46, 5, 12])
    batch = torch.as_tensor(features[2][index]).requires_grad_()
    penalty = ours.penalty(batch, torch.as_tensor(index))
    assert penalty.shape == ()
    assert penalty.item() == pytest.approx(theirs.penalty(features[2][index], index), rel=1e-9)
    penalty.backward()
    expected = theirs.penalty_gradient(features[2][index], index)
    np.testing.assert_allclose(batch.grad.numpy(), expected, rtol=1e-8, atol=1e-12)
    by_hand = 0.3 * (features[2][index] - ours.Z.numpy()[index] - ours.alpha.numpy()[index]) / len(index)
    np.testing.assert_allclose(batch.grad.numpy(), by_hand, rtol=1e-8, atol=1e-12)


def test_penalty_sums_over_features_and_averages_over_the_batch():
    regularizer = made(lambda_tilde=0.0, mu=3.0)
    regularizer.step(torch.zeros(40, 7, dtype=torch.float64))
    assert float(regularizer.penalty(torch.ones(5, 7), torch.arange(5))) == pytest.approx(3.0 / 2 * 7)
    assert float(regularizer.penalty(2 * torch.ones(10, 7), torch.arange(10))) == pytest.approx(3.0 / 2 * 4 * 7)


def test_penalty_takes_repeated_indices_lists_and_an_empty_batch():
    regularizer = made()
    regularizer.step(cloud(40, 3))
    f = cloud(2, 3, seed=1)
    twice = regularizer.penalty(torch.cat([f, f]), [1, 2, 1, 2])
    torch.testing.assert_close(twice, regularizer.penalty(f, torch.tensor([1, 2])))
    assert float(regularizer.penalty(f[:0], torch.tensor([], dtype=torch.int64))) == 0


def test_penalty_of_half_precision_features_is_computed_in_the_targets_precision():
    regularizer = made()
    regularizer.step(cloud(40, 3).float())
    f = cloud(4, 3).half().requires_grad_()
    penalty = regularizer.penalty(f, torch.arange(4))
    assert penalty.dtype == torch.float32
    penalty.backward()
    assert f.grad.dtype == torch.float16


@pytest.mark.parametrize("mass", ["consistent", "lumped"])
def test_constants_are_kept(mass, solver):
    regularizer = made(mass=mass)
    f = torch.full((40, 3), 2.5, dtype=torch.float64)
    for _ in range(2):
        regularizer.step(f)
        torch.testing.assert_close(regularizer.target, f, rtol=1e-12, atol=0)


def test_z_is_zero_at_first_and_then_the_old_target_less_f():
    regularizer = made(**EXACT)
    regularizer.step(cloud(40, 3, seed=1))
    assert (regularizer.Z == 0).all()
    old = regularizer.target.clone()
    f = cloud(40, 3, seed=2)
    regularizer.step(f)
    torch.testing.assert_close(regularizer.Z, old - f)
    torch.testing.assert_close(regularizer.target, regularizer.alpha + regularizer.Z)


def test_lambda_tilde_of_zero_is_exactly_the_control():
    regularizer = made(lambda_tilde=0.0)
    assert regularizer.coupling == float("inf")
    old = None
    for seed in range(3):
        f = cloud(40, 3, seed=seed)
        update = regularizer.step(f)
        assert torch.equal(regularizer.target, f)
        assert torch.equal(regularizer.Z, torch.zeros_like(f) if old is None else old - f)
        assert update.status == "CONVERGED"
        assert update.solver_steps == 0
        old = f
    f.add_(1)  # the target is a copy
    assert not torch.equal(regularizer.target, f)


def test_lambda_tilde_towards_zero_approaches_the_control():
    features = [cloud(40, 3, seed=s) for s in range(3)]
    gaps = []
    for lambda_tilde in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        regularizer = made(lambda_tilde=lambda_tilde, **EXACT)
        for f in features:
            regularizer.step(f)
        gaps.append(float((regularizer.target - features[-1]).abs().max()))
    assert gaps[-1] < 1e-3
    for larger, smaller in itertools.pairwise(gaps[1:]):
        assert smaller == pytest.approx(larger / 10, rel=0.2)  # first order in lambda_tilde


@pytest.mark.parametrize("mass", ["consistent", "lumped"])
def test_groups_together_equal_separate_runs(mass, solver):
    inputs, groups = cloud(45, 6), torch.arange(45) % 3
    options = {"mu": 0.2, "lambda_tilde": 1.0, "mass": mass, **SMALL, **EXACT}
    together = ManifoldRegularizer(inputs, groups, **options)
    alone = [ManifoldRegularizer(inputs[groups == g], None, **options) for g in range(3)]
    for seed in range(3):
        f = cloud(45, 4, seed=10 + seed)
        together.step(f)
        for g in range(3):
            alone[g].step(f[groups == g])
            torch.testing.assert_close(together.target[groups == g], alone[g].target, rtol=0, atol=1e-9)


def test_permutation_equivariance_of_step(solver):
    inputs, groups = cloud(45, 6), torch.arange(45) % 3
    order = torch.randperm(45, generator=torch.Generator().manual_seed(1))
    options = {"mu": 0.2, "lambda_tilde": 1.0, **SMALL, **EXACT}
    straight = ManifoldRegularizer(inputs, groups, **options)
    mixed = ManifoldRegularizer(inputs[order], groups[order], **options)
    for seed in range(2):
        f = cloud(45, 4, seed=seed)
        straight.step(f)
        mixed.step(f[order])
        torch.testing.assert_close(mixed.target, straight.target[order], rtol=0, atol=1e-9)


def test_neighbours_are_sought_on_inputs_and_features_together():
    f = cloud(40, 3, seed=5)
    with_inputs, without = made(**EXACT), made(input_scale=0.0, **EXACT)
    with_inputs.step(f)
    without.step(f)
    assert float((with_inputs.target - without.target).abs().max()) > 0.01
    inputs = cloud(40, 6)
    groups = (np.arange(40) % 3).tolist()
    alone = ReferenceLDMNet(inputs.numpy() * 0, groups, 0.5, 1.0, "lumped", k=8, sigma_neighbor=3)
    np.testing.assert_allclose(without.target.numpy(), alone.step(f.numpy()), rtol=0, atol=1e-8)
    half = ReferenceLDMNet(inputs.numpy() * 0.5, groups, 0.5, 1.0, "lumped", k=8, sigma_neighbor=3)
    scaled = made(input_scale=0.5, **EXACT)
    scaled.step(f)
    np.testing.assert_allclose(scaled.target.numpy(), half.step(f.numpy()), rtol=0, atol=1e-8)


def test_coupling_is_mu_over_lambda_tilde():
    assert made(mu=0.01, lambda_tilde=0.05).coupling == pytest.approx(0.2)


def test_due_every_m_epochs():
    assert [epoch for epoch in range(7) if made().due(epoch)] == [0, 2, 4, 6]
    assert [epoch for epoch in range(7) if made(epochs_per_update=3).due(epoch)] == [0, 3, 6]
    assert all(made(epochs_per_update=1).due(epoch) for epoch in range(7))


def test_the_log_tells_what_happened(solver):
    regularizer = made(**EXACT)
    f = cloud(40, 3, seed=5)
    update = regularizer.step(f)
    assert regularizer.log == [update]
    assert update.status == "CONVERGED"
    assert (update.solver_steps > 0) == (solver == "iterative")
    assert 0 < update.residual <= 1e-13
    assert update.negative_curvature == 0
    assert update.dual == 0
    moved = torch.linalg.vector_norm(regularizer.alpha - f) / torch.linalg.vector_norm(f - f.mean(0))
    assert update.move == pytest.approx(float(moved))
    assert 0 < update.energy < 1  # alpha is smoother than f
    assert set(update.seconds) == {"graph", "solve", "other"}
    regularizer.step(cloud(40, 3, seed=6))
    assert len(regularizer.log) == 2
    assert regularizer.log[1].dual == pytest.approx(float(torch.linalg.vector_norm(regularizer.Z)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_the_features(dtype):
    regularizer = made()
    regularizer.step(cloud(40, 3, dtype=dtype))
    assert regularizer.target.dtype == regularizer.Z.dtype == dtype
    assert regularizer.penalty(cloud(4, 3, dtype=dtype), torch.arange(4)).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_worked_on_in_float32(dtype):
    regularizer = made()
    regularizer.step(cloud(40, 3).to(dtype))
    assert regularizer.target.dtype == torch.float32


def test_the_target_carries_no_gradient():
    regularizer = made()
    regularizer.step(cloud(40, 3).requires_grad_())
    assert not regularizer.target.requires_grad


@pytest.mark.usefixtures("_iterative")
def test_one_warning_for_each_status():
    regularizer = made(lambda_tilde=50.0, tol=1e-13, max_steps=2)
    with pytest.warns(NumericalWarning, match="ended with STEP_LIMIT") as caught:
        regularizer.step(cloud(40, 3))
    assert len(caught) == 1
    assert "raise max_steps" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        update = regularizer.step(cloud(40, 3, seed=1))
    assert update.status == "STEP_LIMIT"
    assert regularizer.target.isfinite().all()


def test_negative_curvature_is_counted_warned_of_and_harmless():
    regularizer = ManifoldRegularizer(cloud(80, 2), mu=1.0, lambda_tilde=0.002, mass="consistent", tol=1e-10, **SMALL)
    f = cloud(80, 3, seed=1)
    with pytest.warns(NumericalWarning, match=r"ended with NEGATIVE_CURVATURE in \d columns") as caught:
        update = regularizer.step(f)
    assert len(caught) == 1
    assert "use mass='lumped'" in str(caught[0].message)
    assert update.status == "NEGATIVE_CURVATURE"
    assert 1 <= update.negative_curvature <= 3
    assert regularizer.target.isfinite().all()
    assert update.energy < 10  # not the 434-fold of an exact indefinite solve
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regularizer.step(f)


@pytest.mark.usefixtures("_iterative")
def test_the_warning_can_be_filtered():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=NumericalWarning)
        made(tol=1e-13, max_steps=1).step(cloud(40, 3))
    assert caught == []
    assert issubclass(NumericalWarning, UserWarning)


@pytest.mark.usefixtures("_iterative")
def test_a_warning_made_an_error_leaves_a_whole_step():
    regularizer = made(tol=1e-13, max_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NumericalWarning):
            regularizer.step(cloud(40, 3))
    try:
        _ = regularizer.target
    except StateError:
        assert regularizer.log == []  # the step was not taken
    else:
        assert len(regularizer.log) == 1  # it was, and is in the log


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs_are_welcome(dtype):
    inputs = (cloud(40, 6).abs() * 100).to(dtype)
    options = {"mu": 0.5, "lambda_tilde": 1.0, **SMALL}
    ours, other = (ManifoldRegularizer(x, torch.arange(40) % 3, **options) for x in (inputs, inputs.float()))
    for regularizer in (ours, other):
        regularizer.step(cloud(40, 3, dtype=torch.float32))
    torch.testing.assert_close(ours.target, other.target, rtol=0, atol=1e-5)
    ManifoldRegularizer(inputs, torch.arange(40) % 3, **options).load_state_dict(ours.state_dict())


def test_a_state_goes_on_where_it_was():
    straight = made(**EXACT)
    for seed in (1, 2):
        straight.step(cloud(40, 3, seed=seed))
    buffer = io.BytesIO()
    torch.save(straight.state_dict(), buffer)
    buffer.seek(0)
    again = made(**EXACT)
    again.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(again.target, straight.target)
    assert torch.equal(again.Z, straight.Z)
    assert again.log == straight.log
    for regularizer in (straight, again):
        regularizer.step(cloud(40, 3, seed=3))
    assert torch.equal(again.target, straight.target)
    assert torch.equal(again.Z, straight.Z)


def test_a_state_is_a_copy_in_both_directions():
    regularizer, other = made(), made()
    regularizer.step(cloud(40, 3))
    state = regularizer.state_dict()
    other.load_state_dict(state)
    kept = regularizer.target.clone()
    state["target"].zero_()
    assert torch.equal(regularizer.target, kept)
    assert torch.equal(other.target, kept)


def test_a_state_before_the_first_step():
    regularizer = made()
    regularizer.load_state_dict(made().state_dict())
    with pytest.raises(StateError):
        _ = regularizer.target


@pytest.mark.parametrize("key", ["target", "Z", "visits", "pull", "steps", "data", "settings"])
def test_a_state_lacking_a_key(key, says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    kept = regularizer.target.clone()
    state = regularizer.state_dict()
    del state[key]
    with says(StateError):
        regularizer.load_state_dict(state)
    assert torch.equal(regularizer.target, kept)


def test_a_state_of_another_data_set(says):
    options = {"mu": 0.5, "lambda_tilde": 1.0, **SMALL}
    inputs, groups = cloud(40, 6), torch.arange(40) % 3
    state = ManifoldRegularizer(inputs, groups, **options).state_dict()
    changed = inputs.clone()
    changed[7, 3] += 1e-9
    for x, g in ((changed, groups), (inputs, groups.flip(0)), (inputs.flip(0), groups), (inputs[:39], groups[:39])):
        with says(StateError):
            ManifoldRegularizer(x, g, **options).load_state_dict(state)


def test_a_state_with_other_settings(says):
    state = made().state_dict()
    with says(StateError):
        made(mu=0.6, mass="consistent").load_state_dict(state)


def test_a_state_is_taken_whole_or_not_at_all():
    regularizer = made()
    regularizer.step(cloud(40, 3))
    kept = regularizer.target.clone()
    other = made()
    other.step(cloud(40, 3, seed=9))
    state = copy.deepcopy(other.state_dict())
    state["steps"][0].pop("move")
    with pytest.raises(StateError, match=r"^the state is damaged: an entry of steps cannot be read: "):
        regularizer.load_state_dict(state)
    assert torch.equal(regularizer.target, kept)
    assert len(regularizer.log) == 1


DAMAGE = {
    "target is no tensor": lambda s: s.update(target=[1.0]),
    "target of another shape": lambda s: s.update(target=s["target"][:, :2]),
    "target of whole numbers": lambda s: s.update(target=s["target"].long()),
    "a NaN in target": lambda s: s["target"][3].fill_(torch.nan),
    "an infinity in Z": lambda s: s["Z"][3, 1].fill_(torch.inf),
    "Z without rows": lambda s: s.update(Z=s["Z"][:5]),
    "Z of another type": lambda s: s.update(Z=s["Z"].float()),
    "no Z": lambda s: s.update(Z=None),
    "running of another shape": lambda s: s.update(running=s["target"][:, :1]),
    "visits below zero": lambda s: s["visits"].fill_(-1),
    "visits of another type": lambda s: s.update(visits=s["visits"].float()),
    "a search that is not there": lambda s: s.update(search={0: {"lists": None, "probes": 8}}),
    "search is no dict": lambda s: s.update(search=7),
    "pull is no dict": lambda s: s.update(pull=[1]),
    "pull without mu": lambda s: s["pull"].pop("mu"),
    "mu is text": lambda s: s["pull"].update(mu="1"),
    "mu is NaN": lambda s: s["pull"].update(mu=float("nan")),
    "a level above one": lambda s: s["pull"].update(level=2.0),
    "a count that is no whole number": lambda s: s["pull"].update(count=1.5),
    "seen without its half": lambda s: s["pull"].update(seen=[1.0], count=3),
    "steps is no list": lambda s: s.update(steps=None),
    "a step that is no dict": lambda s: s.update(steps=[3]),
    "a status that is no text": lambda s: s["steps"][0].update(status=3),
    "a residual that is text": lambda s: s["steps"][0].update(residual="small"),
    "a step's unknown field": lambda s: s["steps"][0].update(warp=9),
    "settings is no dict": lambda s: s.update(settings=3),
}


@pytest.mark.parametrize("fresh", [False, True], ids=["used", "fresh"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_refused_and_nothing_of_it_taken(damage, fresh, says):
    regularizer, other = made(), made()
    other.step(cloud(40, 3, seed=9))
    if not fresh:
        regularizer.step(cloud(40, 3))
    before = regularizer.state_dict()
    state = copy.deepcopy(other.state_dict())
    DAMAGE[damage](state)
    with says(StateError):
        regularizer.load_state_dict(state)
    after = regularizer.state_dict()
    assert str(before) == str(after)
    with says(StateError):
        regularizer.load_state_dict(None)


def test_a_damaged_state_leaves_a_regulariser_without_a_data_set_as_it_was():
    first = ManifoldRegularizer(mu=1, lambda_tilde=1, **SMALL)
    first.step(cloud(30, 3))
    state = first.state_dict()
    state["visits"] = None
    state["Z"] = state["Z"][:2]
    other = ManifoldRegularizer(mu=1, lambda_tilde=1, **SMALL)
    with pytest.raises(StateError):
        other.load_state_dict(state)
    other.step(cloud(20, 3))  # of any number of samples still
    assert len(other.target) == 20


def test_a_step_that_did_not_end_leaves_no_state_to_save(says):
    regularizer = made()
    regularizer._failed = True  # set while several processes work together
    with says(StateError):
        regularizer.state_dict()


@pytest.mark.parametrize("name", ["target", "Z", "alpha"])
def test_nothing_to_read_before_the_first_step(name, says):
    with says(StateError):
        getattr(made(), name)


def test_penalty_before_step(says):
    with says(StateError):
        made().penalty(torch.zeros(4, 3), torch.arange(4))


def test_features_of_another_length(says):
    with says(InputError):
        made().step(cloud(12, 3))


def test_features_of_another_width(says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    with says(InputError):
        regularizer.step(cloud(40, 4))


def test_features_too_large_to_measure_are_never_a_silent_nan(says):
    regularizer = made()
    f = cloud(40, 3, dtype=torch.float32)
    f *= 1e20 / f.abs().max()
    with says(InputError):
        regularizer.step(f)
    assert regularizer.log == []


def test_features_not_finite_leave_the_state_alone(says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    kept = regularizer.target.clone()
    f = cloud(40, 3)
    f[11] = float("nan")
    with says(InputError):
        regularizer.step(f)
    assert torch.equal(regularizer.target, kept)


@pytest.mark.parametrize(
    "index",
    [
        torch.tensor([[0], [1]]),
        torch.tensor([True, False]),
        torch.tensor([0.0, 1.0]),
    ],
)
def test_penalty_index_of_another_kind(index, says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    with says(InputError):
        regularizer.penalty(torch.zeros(2, 3), index)


def test_the_network_may_be_on_another_device():
    regularizer = made()
    regularizer.step(cloud(40, 3))
    seen = torch.zeros(2, 3, device="meta")
    assert regularizer.penalty(seen, torch.tensor([1, 2])).device == seen.device


@pytest.mark.parametrize("mass", ["lumped", "consistent"])
def test_a_point_without_neighbours_stays_where_it_is(mass):
    groups = torch.arange(40) % 3
    groups[7] = 9
    options = {"mu": 1.0, "lambda_tilde": 0.05, "mass": mass}
    regularizer = ManifoldRegularizer(cloud(40, 2), groups, **SMALL, **options)
    features = cloud(40, 3, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # of the printed mass
        regularizer.step(features)
    assert torch.isfinite(regularizer.alpha).all()
    torch.testing.assert_close(regularizer.alpha[7], features[7])


@pytest.mark.parametrize("index", [[0, 40], [-1, 3]])
def test_penalty_index_out_of_range(index, says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    with says(InputError):
        regularizer.penalty(torch.zeros(2, 3), torch.tensor(index))


def test_penalty_shapes(says):
    regularizer = made()
    regularizer.step(cloud(40, 3))
    with says(InputError):
        regularizer.penalty(torch.zeros(4, 3), torch.arange(5))
    with says(InputError):
        regularizer.penalty(torch.zeros(4, 2), torch.arange(4))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "options",
    [
        {"mu": 0.0},
        {"mu": -1.0},
        {"mu": NAN},
        {"mu": INF},
        {"lambda_tilde": -0.1},
        {"lambda_tilde": INF},
        {"n_neighbors": 0},
        {"sigma_neighbor": 0},
        {"epochs_per_update": 0},
        {"max_steps": 0},
        {"mass": "dense"},
        {"input_scale": -1.0},
        {"n_neighbors": 5, "sigma_neighbor": 10},
    ],
)
def test_settings_out_of_range(options, says):
    with says(InputError):
        made(**options)


def build(inputs, groups=None):
    return ManifoldRegularizer(inputs, groups, mu=1.0, lambda_tilde=1.0)


def test_inputs_that_cannot_be_used(says):
    with says(InputError):
        build(torch.zeros(7))
    with says(InputError):
        build(torch.zeros(0, 4))
    with says(InputError):
        build(torch.zeros(7, 2, 2, dtype=torch.uint8))
    inputs = torch.zeros(7, 2, 2)
    inputs[3, 1, 1] = NAN
    with says(InputError):
        build(inputs)


def test_groups_that_cannot_be_used(says):
    with says(InputError):
        build(torch.zeros(7, 2), torch.zeros(7, 1, dtype=torch.int64))


def test_running_features_are_what_the_penalty_saw():
    running, swept = (made(**EXACT, features=how) for how in ("running", "sweep"))
    first, later = cloud(40, 3, seed=1), cloud(40, 3, seed=2)
    for regularizer in (running, swept):
        regularizer.step(first)
    for index in torch.randperm(40).split(7):
        running.penalty(later[index], index)
    assert not running.needs_sweep
    assert swept.needs_sweep
    running.step()
    swept.step(later)
    assert torch.equal(running.target, swept.target)
    assert running.needs_sweep


def test_running_features_must_be_complete(says):
    regularizer = made(features="running")
    with says(StateError):
        regularizer.step()
    regularizer.step(cloud(40, 3))
    regularizer.penalty(cloud(30, 3), torch.arange(30))
    with says(StateError):
        regularizer.step()
    other = made(features="running")
    other.load_state_dict(regularizer.state_dict())
    other.penalty(cloud(10, 3), torch.arange(30, 40))
    assert not other.needs_sweep


def test_a_step_inside_autocast_is_the_same_as_outside():
    inside, outside = made(), made()
    f = cloud(40, 3).float()
    with torch.autocast("cpu", torch.bfloat16):
        inside.step(f)
    outside.step(f)
    assert torch.equal(inside.target, outside.target)


PAPER = {"mu": 1, "lambda_tilde": 1}


@pytest.mark.parametrize(
    ("n", "options", "tol"),
    [
        (AUTO_FROM, {**PAPER, "neighbors": "auto"}, 1e-3),
        (AUTO_FROM - 1, {**PAPER, "neighbors": "auto"}, 1e-5),
        (AUTO_FROM, PAPER, 1e-5),
        (AUTO_FROM, {**PAPER, "neighbors": "auto", "tol": 1e-6}, 1e-6),
        (20, {}, 1e-3),
        (20, {"strength": 0.1}, 1e-3),
        (20, {"tol": 1e-6}, 1e-6),
    ],
)
def test_the_solve_is_as_exact_as_the_graph_and_the_strength_unless_told(n, options, tol):
    regularizer = ManifoldRegularizer(torch.zeros(n, 1), **options)
    assert regularizer.tol == tol


def test_a_penalty_that_is_looked_at_does_not_spoil_the_next_gradient():
    regularizer = ManifoldRegularizer(cloud(30, 4), mu=0.7, lambda_tilde=1.0)
    f = cloud(30, 3, seed=1)
    regularizer.step(f)
    index = torch.arange(7)
    with torch.inference_mode():
        seen = float(regularizer.penalty(f[index], index))
    features = f[index].requires_grad_()
    penalty = regularizer.penalty(features, index)
    penalty.backward()
    assert penalty.item() == pytest.approx(seen)
    torch.testing.assert_close(features.grad, 0.7 / 7 * (f - regularizer.target)[index])


@pytest.mark.parametrize("tol", [0.0, -1.0, float("nan"), 1.0])
def test_a_tolerance_that_cannot_be_met_is_refused(tol):
    with pytest.raises(InputError, match="tol must be above zero and below one, got"):
        ManifoldRegularizer(torch.randn(6, 2), None, mu=0.1, lambda_tilde=0.1, tol=tol)


def test_an_input_scale_that_overflows_is_refused():
    with pytest.raises(InputError, match="scaled inputs has NaN or infinite values"):
        ManifoldRegularizer(torch.full((6, 2), 1e10), None, mu=0.1, lambda_tilde=0.1, input_scale=1e30)


def test_a_state_of_numpy_numbers_can_be_read_without_pickle(tmp_path):
    regularizer = ManifoldRegularizer(
        torch.randn(30, 2),
        None,
        mu=np.float32(0.1),
        lambda_tilde=0.1,
        n_neighbors=np.int64(15),
    )
    torch.save(regularizer.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True)["settings"]["n_neighbors"] == 15


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_an_index_of_any_whole_numbers(kind):
    features = torch.randn(30, 2)
    regularizer = ManifoldRegularizer(torch.randn(30, 2), None, mu=0.1, lambda_tilde=0.1)
    regularizer.step(features)
    index = torch.tensor([3, 1, 20])
    assert regularizer.penalty(features[index], index.to(kind)) == regularizer.penalty(features[index], index)


@pytest.mark.parametrize("numbers", [{}, {"mu": 0.5, "lambda_tilde": 1.0}], ids=["ours", "paper"])
def test_a_step_in_inference_mode_serves_training(numbers):
    f, labels = cloud(40, 5), torch.arange(40) % 3
    plain, inference = (ManifoldRegularizer(cloud(40, 6), labels, **SMALL, **numbers) for _ in range(2))
    for _ in range(2):
        plain.step(f)
        with torch.inference_mode():
            inference.step(f * 1)
        for regularizer in (plain, inference):
            seen = (f + 1).requires_grad_()
            regularizer.penalty(seen, torch.arange(40)).backward()
    assert torch.equal(inference.target, plain.target)
    assert inference.state_dict()["pull"] == plain.state_dict()["pull"]


def test_a_warning_names_the_line_that_called_step():
    regularizer = made()
    regularizer.step(cloud(40, 5))
    regularizer.penalty(cloud(40, 5)[:8], torch.arange(8))
    with pytest.warns(NumericalWarning, match="saw some samples") as told:
        regularizer.step(cloud(40, 5))
    assert told[0].filename == __file__


def test_arrays_of_other_programs_are_welcome():
    pandas = pytest.importorskip("pandas")
    x, y, f = cloud(60, 5, dtype=torch.float32), torch.arange(60) % 3, cloud(60, 4, seed=1, dtype=torch.float32)
    settings = {"mu": 0.1, "lambda_tilde": 0.5}
    targets = []
    for inputs, groups in (
        (x, y),
        (pandas.DataFrame(x.numpy()), pandas.Series(y.numpy())),
        (x.numpy(), y.numpy().astype(">i8")),
    ):
        regularizer = ManifoldRegularizer(inputs, groups, **settings)
        regularizer.step(f)
        targets.append(regularizer.target)
    assert torch.equal(targets[0], targets[1])
    assert torch.equal(targets[0], targets[2])


@pytest.mark.parametrize("name", ["epochs_per_update", "n_neighbors", "max_steps", "sigma_neighbor"])
@pytest.mark.parametrize("value", [1.5, "2", True])
def test_counts_are_whole_numbers(name, value):
    with pytest.raises(InputError, match=f"{name} must be a whole number, got {value!r}."):
        ManifoldRegularizer(groups=torch.arange(60) % 3, **{name: value})
    assert ManifoldRegularizer(groups=torch.arange(60) % 3, **{name: np.int64(20)}).settings is not None
