"""The strength without a unit: laws of its scale, its slow start and its brake, and of samples without a label."""

import io
import math
import warnings

import numpy as np
import pytest
import torch

from clouds import cloud, uneven_groups
from ldmnet import ManifoldRegularizer, knn
from ldmnet.errors import InputError, NumericalWarning, StateError
from ldmnet.strength import COUPLING, FALL, LONG, REACH, RISE, STALLED, START, STRENGTH, UNDONE
from ldmnet.training.divergence import tell_unused
from reference import ReferenceLDMNet

N = 60
LABELS = torch.arange(N) % 3
EXACT = {"tol": 1e-13, "max_steps": 500}
SMALL = {"n_neighbors": 8, "sigma_neighbor": 3}
METHODS = {"ldmnet": {}, "control": {"coupling": math.inf}}


def made(groups=LABELS, **options):
    return ManifoldRegularizer(groups=groups, **{**SMALL, **EXACT, **options})


def epoch(regularizer, f, batch=15):
    """Show all samples to the penalty once; the penalties of the batches, and the gradient at every feature."""
    order, gradient, penalties = torch.randperm(len(f), generator=torch.Generator().manual_seed(1)), f * 0, []
    for index in order.split(batch):
        features = f[index].clone().requires_grad_()
        penalty = regularizer.penalty(features, index)
        (gradient[index],) = torch.autograd.grad(penalty, features)
        penalties.append(penalty.item())
    return torch.tensor(penalties, dtype=torch.float64), gradient


def course(steps=6, n=N, d=5):
    """Features whose classes come apart at the second update, and that then settle."""
    apart = cloud(n, d, seed=101) + 3 * torch.eye(d, dtype=torch.float64)[torch.arange(n) % 3]
    return [cloud(n, d, seed=100), apart, *(apart + 0.3 * cloud(n, d, seed=200 + k) for k in range(steps - 2))]


def trained(regularizer, features):
    """Targets, penalties and gradients of one update and one epoch per feature matrix."""
    found = []
    for f in features:
        regularizer.step(f)
        found.append((regularizer.target, *epoch(regularizer, f.roll(1, 0)), regularizer.mu))
    return found


def whole(regularizer, features):
    """Go on until the pull has its whole strength."""
    regularizer.step(features)
    regularizer._pull.level = 1.0
    epoch(regularizer, features)
    regularizer.step(features)
    assert regularizer.log[-1].strength == pytest.approx(regularizer._pull.strength)
    return regularizer


# ---- the unit


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("method", METHODS)
def test_scaled_features_have_scaled_targets_and_the_same_penalty(method, factor):
    plain = trained(made(**METHODS[method]), course())
    scaled = trained(made(**METHODS[method]), [factor * f for f in course()])
    assert plain[-1][1].min() > 0  # there is a penalty at all
    for (target, penalties, gradient, mu), (scaled_target, same, scaled_gradient, scaled_mu) in zip(
        plain, scaled, strict=True
    ):
        torch.testing.assert_close(scaled_target, factor * target, rtol=1e-8, atol=1e-10 * factor)
        torch.testing.assert_close(same, penalties, rtol=1e-8, atol=1e-15)
        torch.testing.assert_close(scaled_gradient, gradient / factor, rtol=1e-7, atol=1e-13 / factor)
        assert scaled_mu == pytest.approx(mu / factor**2, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_shifted_features_have_shifted_targets_and_the_same_penalty(method):
    shift = 7 * torch.arange(5.0, dtype=torch.float64)
    plain, shifted = made(**METHODS[method]), made(**METHODS[method])
    for f in course():
        for regularizer, by in ((plain, 0), (shifted, shift)):
            regularizer.step(f + by)
        torch.testing.assert_close(shifted.target, plain.target + shift, rtol=1e-8, atol=1e-9)
        moved = f.roll(1, 0)
        torch.testing.assert_close(epoch(shifted, moved + shift)[0], epoch(plain, moved)[0], rtol=1e-7, atol=1e-12)
    assert plain.mu > 0


def test_at_full_strength_it_is_the_papers_penalty_with_the_numbers_it_reports():
    inputs, labels, features = uneven_groups(shape=(1,), d_feat=4, steps=3)
    regularizer = made(labels)
    reference = None
    for f in features:
        regularizer.step(torch.as_tensor(f))
        if reference is None:  # nothing is pulled before the first update that has a level
            regularizer._pull.level = 1.0
            regularizer.step(torch.as_tensor(f))
            mu, lambda_tilde = regularizer.mu, regularizer.lambda_tilde
            spread = float(((f - f.mean(0)) ** 2).sum(1).mean())
            assert mu == pytest.approx(STRENGTH / spread, rel=1e-3)  # no outlier in it to speak of
            assert mu / lambda_tilde == pytest.approx(COUPLING)
            reference = ReferenceLDMNet(0 * inputs, labels, mu, lambda_tilde, "lumped", k=8, sigma_neighbor=3)
        reference.step(f)
        for name in ("Z", "alpha", "target"):
            np.testing.assert_allclose(getattr(regularizer, name).numpy(), getattr(reference, name), rtol=0, atol=1e-8)
        reference.mu = regularizer.mu
        index = np.arange(0, len(f), 2)
        near = 0.3 * f[index] + 0.7 * reference.target[index]  # narrower than at the update
        batch = torch.as_tensor(near).requires_grad_()
        penalty = regularizer.penalty(batch, torch.as_tensor(index))
        assert penalty.item() == pytest.approx(reference.penalty(near, index), rel=1e-9)
        penalty.backward()
        expected = reference.penalty_gradient(near, index)
        np.testing.assert_allclose(batch.grad.numpy(), expected, rtol=1e-8, atol=1e-12)
        regularizer._pull._seen = None  # the level stays
        regularizer._seen = None


def test_a_wider_batch_is_measured_by_its_own_spread():
    f = cloud(N, 5, seed=1)
    regularizer = whole(made(coupling=math.inf), f)
    wide, index = 3 * f, torch.arange(N)
    spread = (wide - wide.mean(0)).square().sum(1).mean()
    expected = STRENGTH / (2 * spread) * (wide - f).square().sum(1).mean()
    assert regularizer.penalty(wide, index).item() == pytest.approx(float(expected))


def test_one_outlier_changes_little():
    f = cloud(N, 5, seed=1)
    out = f.clone()
    spread = float((f - f.mean(0)).square().sum(1).mean().sqrt())
    out[7] = 1e4 * spread * torch.ones(5, dtype=torch.float64) / 5**0.5
    plain, hit = whole(made(), f), whole(made(), out)
    assert 1 / 1.2 < hit.mu / plain.mu < 1.2
    # away from its target, it is pulled no harder than a sample at the edge of the reach
    gradients = []
    for far in (1.0, 2.0, 10.0, 100.0, 1e4):
        batch = f.clone()
        batch[7] += far * spread
        one = batch[7:8].clone().requires_grad_()  # a batch whose own spread does not soften it
        (gradient,) = torch.autograd.grad(plain.penalty(one, torch.tensor([7])), one)
        gradients.append(float(gradient.norm()))
        whole_batch = epoch(plain, batch, batch=N)[1]
        assert float(whole_batch[7].norm()) <= 1.1 * gradients[-1] / N
    assert max(gradients) <= 1.1 * STRENGTH * REACH / spread
    assert gradients[4] < gradients[3] < gradients[2] < gradients[1]


@pytest.mark.parametrize("alike", [1.0, 0.6])
def test_features_that_are_all_or_mostly_the_same(alike):
    f = torch.full((N, 4), 2.5, dtype=torch.float64)
    kept = round(alike * N)
    f[kept:] += cloud(N - kept, 4)
    regularizer = whole(made(), cloud(N, 4)) if alike < 1 else made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(LONG - 1 if alike == 1 else 5):  # longer is told: no pull, or Z that grows until the brake
            regularizer.step(f)
            penalties, gradient = epoch(regularizer, f)
            assert regularizer.target.isfinite().all()
            assert penalties.isfinite().all()
            assert gradient.isfinite().all()
            if alike == 1:
                assert (penalties == 0).all()
                assert regularizer.mu == 0
                torch.testing.assert_close(regularizer.target, f)
    if alike < 1:
        assert 0 < regularizer.mu < math.inf


# ---- the slow start and the brake


def test_without_classes_the_pull_waits_until_training_has_moved_the_features():
    regularizer, f = made(None), cloud(N, 5)
    for _ in range(4):
        assert regularizer.step(f).strength == 0
        assert torch.equal(regularizer.target, f)
        assert (regularizer.Z == 0).all()
        penalties, gradient = epoch(regularizer, 1.2 * f)  # too little
        assert (penalties == 0).all()
        assert (gradient == 0).all()
    epoch(regularizer, cloud(N, 5, seed=9))
    f = cloud(N, 5, seed=9)
    levels = []
    for _ in range(12):
        levels.append(regularizer.step(f).strength / STRENGTH)
        assert not torch.equal(regularizer.target, f)
        assert epoch(regularizer, f)[0].min() > 0
    assert levels == pytest.approx([min(1.0, START * RISE**k) for k in range(12)])
    assert [u.strength / STRENGTH for u in regularizer.log[-12:]] == levels
    assert regularizer.log[-1].mu == regularizer.mu == pytest.approx(STRENGTH / regularizer._pull.spread)


def test_the_pull_begins_when_the_classes_come_apart():
    regularizer, f, apart = made(), cloud(N, 5), torch.eye(5, dtype=torch.float64)[LABELS]
    strengths = []
    shares = (0.0, 0.1, 2.0, 2.0, 2.0)  # the classes' means move by less than a spread
    for share in shares:
        strengths.append(regularizer.step(f + share * apart).strength / STRENGTH)
        epoch(regularizer, f + share * apart)
    assert strengths == pytest.approx([0, 0, START, RISE * START, RISE**2 * START])
    alone = made(None)  # in one group there is nothing to come apart
    for share in shares:
        assert alone.step(f + share * apart).strength == 0
        epoch(alone, f + share * apart)


def test_where_the_classes_stay_as_they_are_it_never_begins():
    regularizer, f = made(), cloud(N, 5)
    for _ in range(30):
        assert regularizer.step(f).strength == 0
        assert (epoch(regularizer, f)[0] == 0).all()


@pytest.mark.parametrize(
    ("more", "size", "factor"),
    [
        (0.9 * STALLED, 0.8, RISE),
        (1.5 * STALLED, 0.8, 1.0),
        (1.2 * UNDONE, 0.8, FALL),
        (1.5 * STALLED, 1.0, RISE),  # features that keep their spread are not blamed on the pull
        (1.2 * UNDONE, 1.0, RISE),
    ],
)
def test_the_level_rises_only_while_the_classes_keep_apart(more, size, factor):
    noise, means = cloud(N, 5), 2 * torch.eye(5, dtype=torch.float64)[LABELS]
    for members in (torch.nonzero(k == LABELS).flatten() for k in LABELS.unique()):
        noise[members] -= noise[members].mean(0)

    def features(share):
        """The same spread, with a share of it within classes."""
        between = (means - means.mean(0)).square().sum(1).mean()
        scale = (share / (1 - share) * between / noise.square().sum(1).mean()).sqrt()
        f = means - means.mean(0) + scale * noise
        return f / f.square().sum(1).mean().sqrt()

    regularizer = made()
    for share in (0.8, 0.4, 0.4, 0.4, 0.4):
        regularizer.step(features(share))
        epoch(regularizer, features(share))
    before = RISE**3 * START * STRENGTH
    assert regularizer.log[-1].strength == pytest.approx(before)
    epoch(regularizer, size * features(0.4 + more))
    assert regularizer.step(size * features(0.4 + more)).strength == pytest.approx(RISE * before)  # one may be noise
    epoch(regularizer, size * features(0.4 + more))
    assert regularizer.step(size * features(0.4 + more)).strength == pytest.approx(factor * RISE * before)


def test_a_whole_pull_that_undoes_the_classes_is_told():
    regularizer, f = made(), cloud(N, 5) + 3 * torch.eye(5, dtype=torch.float64)[LABELS]
    regularizer.step(f)
    regularizer._pull.level = 1.0
    epoch(regularizer, f)
    assert regularizer.step(cloud(N, 5)).strength == STRENGTH  # one update may be noise
    epoch(regularizer, cloud(N, 5))
    with pytest.warns(
        NumericalWarning, match=r"the classes came together again: .* was 0\.\d+ and had risen to 0\.\d+"
    ):
        assert regularizer.step(cloud(N, 5)).strength == FALL * STRENGTH


def test_the_brake_leaves_a_little():
    regularizer, f = risen()
    for _ in range(9):
        f = f / 2.5
        epoch(regularizer, f)
        regularizer.step(f)
    assert regularizer.log[-1].strength == pytest.approx(START * STRENGTH)


def test_without_a_penalty_in_between_it_keeps_waiting():
    regularizer = made()
    for seed in range(18):
        assert regularizer.step(cloud(N, 5, seed=seed)).strength == 0


def risen(to=0.01, **options):
    """A regulariser on its way up, at rest."""
    regularizer, f = made(**options), cloud(N, 5)
    regularizer.step(f)
    regularizer._pull.level = to
    regularizer.step(f)
    for _ in range(2):
        epoch(regularizer, f)
        regularizer.step(f)
    return regularizer, f


def test_a_shrinking_spread_stops_the_rise_and_then_lowers_the_level():
    for shrunk, factor in ((1.2, RISE), (1.7, 1.0), (2.5, FALL)):  # of lengths; the widest spread is forgotten slowly
        regularizer, f = risen()
        before = regularizer._pull.level
        epoch(regularizer, f / shrunk)
        assert regularizer.step(f / shrunk).strength == pytest.approx(STRENGTH * before * factor)


def test_at_full_strength_only_a_collapse_lowers_the_level():
    regularizer, f = risen(1.0)
    epoch(regularizer, f / 3)
    assert regularizer.step(f / 3).strength == STRENGTH
    regularizer, f = risen(1.0)
    epoch(regularizer, f / 6)
    with pytest.warns(NumericalWarning, match=r"the spread of the features fell to 0\.1\d of what it was before"):
        assert regularizer.step(f / 6).strength == FALL * STRENGTH


def test_features_that_run_away_lower_the_level_with_one_warning_that_holds_the_numbers():
    regularizer, f = risen(1.0)
    away, target, spread = f + 100, regularizer.target, (f - f.mean(0)).square().sum(1).mean()
    epoch(regularizer, away)
    with pytest.warns(NumericalWarning) as caught:
        update = regularizer.step(f)
    assert len(caught) == 1
    words = str(caught[0].message)
    said = float(words.split("the features were ")[1].split(" times")[0])
    assert said == pytest.approx(float((away - target).square().sum(1).mean() / spread) ** 0.5, rel=0.01)
    assert f"before update {len(regularizer.log)}: the regulariser's strength falls from 0.3 to 0.075" in words
    assert update.strength == regularizer.log[-1].strength == FALL * STRENGTH
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # shown once, and on the way up not at all
        epoch(regularizer, away)
        assert regularizer.step(f).strength == FALL**2 * STRENGTH
        strengths = []
        for _ in range(6):
            epoch(regularizer, f)
            strengths.append(regularizer.step(f).strength)
        assert strengths[-1] == STRENGTH  # it recovers
        epoch(regularizer, away)
        assert regularizer.step(f).strength == FALL * STRENGTH
    assert all(u.strength == s for u, s in zip(regularizer.log[-7:], [*strengths, FALL * STRENGTH], strict=True))


def test_the_papers_numbers_have_no_slow_start_and_no_brake():
    regularizer = ManifoldRegularizer(cloud(N, 3), LABELS, mu=0.4, lambda_tilde=0.8, **SMALL)
    for far in (0, 100, 1e4):
        f = cloud(N, 5) * (1 + far)
        update = regularizer.step(f)
        assert (update.mu, update.lambda_tilde, update.strength) == (0.4, 0.8, None)
        epoch(regularizer, f + far)


def test_the_log_has_the_mean_penalty_since_the_last_update():
    regularizer = made(mu=0.4, lambda_tilde=0.8)
    assert regularizer.step(cloud(N, 5)).penalty is None
    penalties, _ = epoch(regularizer, cloud(N, 5, seed=1))
    assert regularizer.step(cloud(N, 5)).penalty == pytest.approx(float(penalties.mean()))


# ---- options


@pytest.mark.parametrize(
    "options",
    [
        {"strength": 0.3, "mu": 0.1, "lambda_tilde": 0.1},
        {"coupling": 0.3, "mu": 0.1},
        {"mu": 0.1},
        {"lambda_tilde": 0.1},
        {"strength": 0},
        {"strength": -0.3},
        {"strength": math.nan},
        {"strength": math.inf},
        {"strength": "strong"},
        {"strength": True},
        {"coupling": 0.0},
        {"coupling": math.nan},
        {"strenght": 0.3},
    ],
)
def test_options_that_do_not_do(options, says):
    with says(InputError):
        ManifoldRegularizer(groups=LABELS, **options)


def test_an_option_like_none_of_them_is_told_them_all():
    with pytest.raises(InputError, match=r"^there is no option 'xyz'\. The options: strength, coupling, mu, "):
        ManifoldRegularizer(groups=LABELS, xyz=1)


def test_strength_and_coupling_are_what_they_say():
    f = cloud(N, 5)
    plain, other = whole(made(), f), whole(made(strength=0.6, coupling=0.5), f)
    assert other.mu == pytest.approx(2 * plain.mu)
    assert plain.lambda_tilde == pytest.approx(plain.mu / COUPLING)
    assert other.lambda_tilde == pytest.approx(other.mu / 0.5)
    assert (plain.coupling, other.coupling) == (COUPLING, 0.5)
    control = whole(made(coupling=math.inf), f)
    assert (control.mu, control.lambda_tilde) == (pytest.approx(plain.mu), 0)
    assert torch.equal(control.target, f)


def test_repr_says_what_it_is():
    assert repr(ManifoldRegularizer()) == (
        "ManifoldRegularizer() of any number of samples, graph on the features, 0 updates"
    )
    regularizer = ManifoldRegularizer(cloud(N, 2), LABELS, mu=0.5, lambda_tilde=1.0)
    regularizer.step(cloud(N, 5))
    assert repr(regularizer) == (
        "ManifoldRegularizer(mu=0.5, lambda_tilde=1.0) of 60 samples, graph on the inputs and features, 1 updates, "
        "mu 0.5"
    )
    assert "strength=0.7" in repr(ManifoldRegularizer(groups=LABELS, strength=0.7))


# ---- inputs and labels that are not there


class Column:
    """A column as pandas has it: an array by itself, with an index of its own."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=object)
        self.dtype = self.values.dtype

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


NAMES = [["ant", "bee", "cat"][i] for i in LABELS]


@pytest.mark.parametrize("groups", [NAMES, Column(NAMES), LABELS.numpy()], ids=["list", "column", "numpy"])
def test_groups_of_any_kind_without_inputs(groups):
    plain, other = made(), made(groups)
    for f in course(4):
        for regularizer in (plain, other):
            regularizer.step(f)
        assert torch.equal(other.target, plain.target)
        assert torch.equal(epoch(other, f)[0], epoch(plain, f)[0])


def test_without_inputs_the_graph_is_on_the_features_alone():
    options = {"mu": 0.3, "lambda_tilde": 1.0}
    alone, zeros, scaled = (
        ManifoldRegularizer(inputs, LABELS, **SMALL, **EXACT, **options, **more)
        for inputs, more in ((None, {}), (torch.zeros(N, 3).double(), {}), (cloud(N, 3), {"input_scale": 0.0}))
    )
    for f in course(3):
        for regularizer in (alone, zeros, scaled):
            regularizer.step(f)
        torch.testing.assert_close(alone.target, zeros.target, rtol=0, atol=1e-10)
        torch.testing.assert_close(alone.target, scaled.target, rtol=0, atol=1e-10)


SOME = torch.where(torch.arange(N) % 5 == 2, -1, LABELS)


@pytest.mark.parametrize("options", [{}, {"coupling": math.inf}, {"mu": 0.3, "lambda_tilde": 1.0}], ids=str)
def test_samples_without_a_label_take_no_part(options):
    known = SOME >= 0
    some, alone = made(SOME, **options), made(SOME[known], **options)
    for f in course():
        some.step(f)
        alone.step(f[known])
        assert some.target[~known].isnan().all()
        torch.testing.assert_close(some.target[known], alone.target, rtol=0, atol=1e-10)
        assert some.mu == pytest.approx(alone.mu)
        moved = f.roll(1, 0)
        penalties, gradient = epoch(some, moved, batch=N)
        assert (gradient[~known] == 0).all()
        assert penalties.isfinite().all()
        epoch(alone, moved[known], batch=N)
    assert gradient[known].abs().max() > 0
    unknown = torch.nonzero(~known)[:, 0]
    batch = f[unknown].requires_grad_()
    penalty = some.penalty(batch, unknown)
    assert penalty.item() == 0
    penalty.backward()
    assert (batch.grad == 0).all()
    assert math.isfinite(some.step(f.detach()).penalty)
    index = torch.cat([unknown[:3], torch.nonzero(known)[:3, 0]])
    mixed, pulled = some.penalty(f[index] + 1, index), some.penalty(f[index[3:]] + 1, index[3:])
    assert mixed.item() == pytest.approx(pulled.item() / 2)  # the mean is over the batch


def test_running_features_of_labelled_samples_are_enough():
    regularizer = made(SOME, features="running")
    regularizer.step(cloud(N, 5))
    known = torch.nonzero(SOME >= 0)[:, 0]
    regularizer.penalty(cloud(N, 5, seed=1)[known], known)
    assert not regularizer.needs_sweep
    regularizer.step()


def test_no_label_at_all_is_refused(says):
    with says(InputError):
        ManifoldRegularizer(groups=[-1] * 10)
    with says(InputError):
        ManifoldRegularizer(cloud(10, 3), [-1] * 10)


def test_with_nothing_given_the_first_step_tells_how_many_samples_there_are():
    bare, one = made(None), made(torch.zeros(N, dtype=torch.int64))
    for f in course(4):
        for regularizer in (bare, one):
            regularizer.step(f)
        assert torch.equal(bare.target, one.target)
        assert torch.equal(epoch(bare, f)[0], epoch(one, f)[0])
    with pytest.raises(InputError, match="features has 12 rows but the regularizer was built for 60 samples"):
        bare.step(cloud(12, 5))


def test_neighbours_of_group_minus_one():
    points = cloud(N, 3)
    found = knn(points, 5, SOME)
    known = SOME >= 0
    assert (found.index[~known] == -1).all()
    assert (found.distance[~known] == torch.inf).all()
    assert known[found.index[known]].all()
    alone = knn(points[known], 5, SOME[known])
    assert torch.equal(found.index[known], torch.nonzero(known)[:, 0][alone.index])
    torch.testing.assert_close(found.distance[known], alone.distance)
    nobody = knn(points, 5, torch.full((N,), -1))
    assert (nobody.index == -1).all()
    assert (nobody.distance == torch.inf).all()


# ---- which samples penalty saw


def test_samples_that_are_left_out_or_seen_more_often_are_told_once():
    for index, words in (
        (torch.arange(N - 4), "saw some samples 1 times and others 0 times (4 of 60 never)"),
        (torch.cat([torch.arange(N), torch.arange(3)]), "saw some samples 2 times and others 1 times (0 of 60 never)"),
    ):
        regularizer, f = made(), cloud(N, 5)
        regularizer.step(f)
        regularizer.penalty(f[index], index)
        with pytest.warns(NumericalWarning) as caught:
            regularizer.step(f)
        assert len(caught) == 1
        assert words in str(caught[0].message)
        assert "a weighted sampler that is harmless" in str(caught[0].message)
        regularizer.penalty(f[index], index)
        regularizer.step(f)  # a warning would be an error


def test_equal_visits_are_nothing_to_tell():
    regularizer, f = made(SOME), cloud(N, 5)
    regularizer.step(f)
    regularizer.step(f)  # none
    for _ in range(2):
        epoch(regularizer, f)
    regularizer.step(f)


# ---- state


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("groups", [None, LABELS, SOME], ids=["none", "labels", "some"])
@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("cut", [False, True], ids=["at_a_step", "in_an_epoch"])
@pytest.mark.parametrize("options", [{}, {"mu": 0.3, "lambda_tilde": 1.0}], ids=["strength", "mu"])
def test_a_state_resumes_bit_for_bit(dtype, groups, before, cut, options):
    features = [f.to(dtype) for f in course(before + 2)]
    index = torch.arange(N // 2)

    def rest(regularizer):
        found = []
        for k, f in enumerate(features[before:]):
            if before and k == 0 and cut:
                regularizer.penalty(features[before - 1][index + N // 2] + 1, index + N // 2)
            regularizer.step(f)
            found += [regularizer.target.nan_to_num(), *epoch(regularizer, f.roll(1, 0))]
        return found

    options = {**options, "tol": None}
    straight = made(groups, **options)
    for k, f in enumerate(features[:before]):
        straight.step(f)
        if cut and k == before - 1:
            straight.penalty(f[index] + 1, index)
        else:
            epoch(straight, f.roll(1, 0))
    state = through_a_file(straight.state_dict())
    again = made(groups, **options)
    again.load_state_dict(state)
    assert again.log == straight.log
    for name in ("mu", "updates", "level", "spread", "widest", "within", "untrained", "lowest"):
        assert getattr(again._pull, name) == getattr(straight._pull, name)
    if before:
        assert torch.equal(again._seen.visits, straight._seen.visits)
    for ours, theirs in zip(rest(again), rest(straight), strict=True):
        assert torch.equal(ours, theirs)
    assert [u.strength for u in again.log] == [u.strength for u in straight.log]


def test_a_state_from_within_an_epoch_suits_a_network_on_another_device():
    regularizer, again, index = made(), made(), torch.arange(9)
    regularizer.step(cloud(N, 5))
    regularizer.penalty(cloud(9, 5), index)
    again.load_state_dict(regularizer.state_dict())
    seen = torch.zeros(9, 5, device="meta", dtype=torch.float64)
    assert again.penalty(seen, index).device == seen.device


def test_a_state_that_is_refused_leaves_a_fresh_regularizer_fresh(says):
    saved = made(None)
    saved.step(cloud(N, 5))
    other = made(None, strength=0.7)
    with says(StateError):
        other.load_state_dict(saved.state_dict())
    assert "any number of samples" in repr(other)
    other.step(cloud(12, 5))


def test_a_state_of_other_labels_is_refused():
    saved = made()
    saved.step(cloud(N, 5))
    for groups in (SOME, None, LABELS.flip(0)):
        with pytest.raises(StateError, match="another data set"):
            made(groups).load_state_dict(saved.state_dict())


def test_a_pull_that_does_not_begin_is_told_once_and_says_why():
    regularizer, f = made(), cloud(N, 5)
    for _ in range(LONG - 1):
        regularizer.step(f)
        epoch(regularizer, f)
    share = f"{regularizer._pull.untrained:.3g}"
    words = f"has fallen by 15 %: it was {share} at the first update and {share} at its lowest"
    with pytest.warns(UserWarning, match=words):
        regularizer.step(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(LONG):
            epoch(regularizer, f)
            regularizer.step(f)


def test_what_the_pull_waits_for():
    regularizer, without = made(), made(groups=None)
    assert regularizer.waiting == ""
    for f in course(3):
        regularizer.step(f)
        without.step(f)
    assert "penalty() must be called" in regularizer.waiting
    assert "features move by more than 0.7 of their spread" in without.waiting
    for f in course(3):
        epoch(regularizer, f)
        regularizer.step(f)
    assert regularizer.waiting == ""


def test_features_whose_squares_vanish_are_told():
    f = 1e-25 * cloud(60, 5, dtype=torch.float32)
    regularizer = ManifoldRegularizer(groups=torch.arange(60) % 3)
    with pytest.warns(NumericalWarning, match=r"differ by .*e-25 at most: their squares vanish in torch\.float32"):
        regularizer.step(f)
    ManifoldRegularizer(groups=torch.arange(60) % 3).step(f.double())  # served there, and without a word
    ManifoldRegularizer(groups=torch.arange(60) % 3).step(torch.zeros(60, 5))  # nothing differs at all


@pytest.mark.parametrize(("few", "strength", "begins"), [(10, None, True), (9, None, False), (9, 0.3, True)])
def test_beside_a_class_above_four_fifths_the_pull_begins_only_if_asked(few, strength, begins):
    groups = torch.tensor([0] * 40 + [1] * few + [-1] * 30)  # samples without a label do not count
    draw = torch.Generator().manual_seed(0)
    apart = torch.nn.functional.one_hot(groups.clamp(min=0), 3).float() * 4
    regularizer = ManifoldRegularizer(groups=groups, strength=strength)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for update in range(4):
            noise = torch.randn(len(groups), 3, generator=draw)
            features = apart * min(1, update) + noise  # the classes come apart after the first update
            regularizer.step(features)
            regularizer.penalty(features, torch.arange(len(groups)))
            said = [str(w.message) for w in caught if "one class has" in str(w.message)]
            assert len(said) == int(not begins)
        tell_unused(regularizer)
    assert sum("one class has" in str(w.message) for w in caught) == int(not begins)  # at the end not again
    assert (regularizer.log[-1].strength > 0) == begins
    assert (regularizer.waiting == "") == begins
    if not begins:
        assert "one class has 40 of 49 samples" in said[0]


def test_one_class_of_everything_does_not_outweigh_itself():
    regularizer = ManifoldRegularizer(groups=torch.zeros(30, dtype=torch.long))
    for scale in (1.0, 3.0):
        regularizer.step(scale * cloud(30, 4))
        regularizer.penalty(-3 * cloud(30, 4), torch.arange(30))
    assert regularizer.waiting == ""


def test_a_saved_mu_that_is_all_but_zero_pulls_all_but_nothing():
    regularizer = ManifoldRegularizer(groups=torch.arange(40) % 2)
    f = cloud(40, 4, dtype=torch.float32)
    regularizer.step(f)
    state = regularizer.state_dict()
    state["pull"].update(mu=1e-300, level=1.0)
    regularizer.load_state_dict(state)
    assert float(regularizer.penalty(f + 1, torch.arange(40))) < 1e-30  # and no error of torch's


# ---- one broken batch


def with_one_broken(regularizer, f, factor, steps=4):
    """Updates on the same features; in the epoch before the second of them one sample of one batch is broken."""
    index = torch.arange(N)
    for step in range(steps):
        batch = f.clone()
        if step == 1:
            batch[0] *= factor
        for rows in index.split(15):
            regularizer.penalty(batch[rows], rows)
        regularizer.step(f)
    return [update.strength for update in regularizer.log[-steps:]]


@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_that_is_not_finite_counts_for_nothing(factor, dtype):
    f = cloud(N, 5, seed=1).to(dtype)
    if factor == 1e25 and dtype == torch.float64:
        factor = 1e200
    clean, broken = (with_one_broken(whole(made(), f), f, by) for by in (1.0, factor))
    assert broken == clean == [STRENGTH] * 4


def test_a_batch_far_out_costs_one_brake():
    f = cloud(N, 5, seed=1)
    regularizer = whole(made(), f)
    with pytest.warns(NumericalWarning, match="rises again while that does not recur"):
        strengths = with_one_broken(regularizer, f, 1e4, steps=10)
    assert strengths[:2] == [STRENGTH, min(strengths)] == pytest.approx([STRENGTH, FALL * STRENGTH])
    assert strengths[-1] == STRENGTH


def test_where_no_batch_is_finite_nothing_is_known():
    f = cloud(N, 5, seed=1)
    regularizer = whole(made(), f)
    level = regularizer._pull.level
    regularizer.penalty(math.nan * f, torch.arange(N))
    state = regularizer.state_dict()
    again = made()
    again.load_state_dict(state)
    for one in (regularizer, again):
        one.step(f)
        assert one.log[-1].penalty is None
        assert one._pull.level == level
