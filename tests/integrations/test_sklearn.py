import math
import pickle
import warnings

import numpy as np
import pytest
import torch

from ldmnet import Method, fit
from ldmnet.errors import BadEndWarning, InputError
from ldmnet.networks import initialize, mlp
from ldmnet.strength import COUPLING, STRENGTH

pytest.importorskip("sklearn", reason="the extra sklearn is not installed")

from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ldmnet.integrations.sklearn import LDMClassifier

DEVIATIONS = {  # check -> reason; the other checks of scikit-learn all pass
    "check_sample_weight_equivalence_on_dense_data": "batches and graph count samples, not their weights",
    "check_methods_subset_invariance": "to 1e-7, which single precision does not keep on every processor: see below",
}


def small(**options):
    return LDMClassifier(**{"epochs": 8, "hidden": (32,), "random_state": 0, **options})


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True)


@parametrize_with_checks(
    [LDMClassifier(epochs=6, hidden=(16,), random_state=0)], expected_failed_checks=lambda estimator: DEVIATIONS
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_a_sample_is_answered_alike_alone_and_among_others(wine):
    x, y = wine
    classifier = small().fit(x, y)
    for answer in (classifier.predict_proba, classifier.transform):
        alone = np.concatenate([answer(row[None]) for row in x])
        np.testing.assert_allclose(alone, answer(x), rtol=1e-5, atol=1e-6)


def test_works_on_raw_columns_without_an_argument(wine):
    x, y = wine
    classifier = LDMClassifier(random_state=0).fit(x[::2], y[::2])
    assert classifier.score(x[1::2], y[1::2]) > 0.93
    assert classifier.regularizer_.log[-1].strength == STRENGTH  # the slow start is over
    assert classifier.mu_ > 0
    assert classifier.lambda_tilde_ == pytest.approx(classifier.mu_ / COUPLING)
    assert len(classifier.history_) == 40
    assert len(classifier.regularizer_.target) == len(x[::2])  # nothing is held back


def test_scales_of_the_columns_do_not_matter(wine):
    x, y = wine
    plain = small().fit(x, y).predict_proba(x)
    scaled = small().fit(1e7 + x * 10.0 ** np.arange(13), y).predict_proba(1e7 + x * 10.0 ** np.arange(13))
    np.testing.assert_allclose(scaled, plain, atol=1e-3)


def test_labels_may_be_words_and_probabilities_follow_their_order(wine):
    x, y = wine
    names = np.array(["<script>", "red", "Ähre"])[y]
    classifier = small().fit(x, names)
    assert classifier.classes_.tolist() == ["<script>", "red", "Ähre"]
    p = classifier.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (classifier.classes_[p.argmax(1)] == classifier.predict(x)).all()


def test_the_same_random_state_gives_the_same_network(wine):
    x, y = wine
    first, again, other = (small(random_state=seed).fit(x, y).predict_proba(x) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    kept = torch.get_rng_state()
    small(random_state=np.random.RandomState(1)).fit(x, y)
    assert torch.equal(torch.get_rng_state(), kept)


def test_pickle_keeps_the_answers_and_leaves_the_training_set_out(wine):
    x, y = wine
    classifier = small().fit(x, y)
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(copy.predict_proba(x), classifier.predict_proba(x))
    assert not hasattr(copy, "regularizer_")
    assert classifier.regularizer_.log


def test_pipeline_grid_search_and_clone(wine):
    x, y = wine
    pipeline = make_pipeline(StandardScaler(), small(epochs=4))
    search = GridSearchCV(pipeline, {"ldmclassifier__coupling": [math.inf, None]}, cv=2).fit(x, y)
    assert search.best_params_["ldmclassifier__coupling"] in (math.inf, None)
    assert search.score(x, y) > 0.8
    assert clone(pipeline).get_params()["ldmclassifier__epochs"] == 4


def test_transform_gives_the_features_by_name(wine):
    x, y = wine
    classifier = small(hidden=(16, 12)).fit(x, y)
    features = classifier.transform(x)
    assert features.shape == (len(x), 12)
    assert features.min() >= 0  # after the ReLU
    assert classifier.get_feature_names_out()[-1] == "ldmclassifier11"
    logits = classifier.module_.head(torch.from_numpy(features)).detach()
    np.testing.assert_allclose(logits.softmax(1).numpy(), classifier.predict_proba(x), atol=1e-5)


def test_a_module_is_copied_and_starts_from_its_weights(wine):
    x, y = wine
    module = mlp(13, 3, (8,))
    initialize(module, "he", 5)
    before = [p.detach().clone() for p in module.parameters()]
    classifier = LDMClassifier(module, epochs=1, lr=1e-8, random_state=0).fit(x, y)
    assert classifier.module_ is not module
    for old, given, trained in zip(before, module.parameters(), classifier.module_.parameters(), strict=True):
        assert torch.equal(old, given)
        torch.testing.assert_close(trained, given, atol=1e-5, rtol=0)


def test_a_factory_gets_the_numbers_of_inputs_and_classes(wine):
    x, y = wine
    seen = []

    def factory(d_in, n_classes):
        seen.append((d_in, n_classes))
        return mlp(d_in, n_classes, (8,))

    first, again = (LDMClassifier(factory, epochs=2, random_state=0).fit(x, y).predict_proba(x) for _ in range(2))
    assert seen == [(13, 3), (13, 3)]
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("shape", "d_feat"),
    [((28, 28), 128), ((1, 28, 28), 128), ((3, 16, 20), 128), ((5, 5), 256), ((2, 3, 4), 256), ((3, 15, 40), 256)],
)
def test_images_get_their_network(shape, d_feat, says):
    x = np.random.default_rng(0).integers(0, 256, (16, *shape), np.uint8)
    classifier = LDMClassifier(epochs=1, random_state=0).fit(x, np.arange(16) % 2)
    assert classifier.predict_proba(x).shape == (16, 2)
    assert classifier.transform(x[:2]).shape == (2, d_feat)
    with says(InputError):
        classifier.predict(np.zeros((2, shape[0], 7)))


@pytest.fixture
def fitted(monkeypatch):
    """What `fit` is called with."""
    calls = []

    def spied(*args, **options):
        calls.append((args, options))
        return fit(*args, **options)

    monkeypatch.setattr("ldmnet.integrations.sklearn.fit_network", spied)
    return calls


@pytest.mark.parametrize(
    ("n", "shape", "wanted"),
    [
        (400, (18, 18), ("cosine", 0.05, 60, 50, 0.005, "shift")),
        (80, (3, 16, 16), ("cosine", 0.05, 60, 10, 0.005, "shift,flip")),  # few images: smaller batches
        (16, (3, 16, 16), ("cosine", 0.05, 60, 4, 0.005, "shift,flip")),
        (16, (7,), ("step", 0.02, 40, 32, 0.0, "")),
    ],
)
def test_every_network_has_its_own_settings(monkeypatch, n, shape, wanted):
    class SeenError(Exception):
        """Ends the call when it has seen what it is here for."""

    def spied(*args, settings, **options):
        names = ("schedule", "lr", "epochs", "batch_size", "weight_decay", "augment")
        assert tuple(getattr(settings, name) for name in names) == wanted
        raise SeenError

    monkeypatch.setattr("ldmnet.integrations.sklearn.fit_network", spied)
    x = np.random.default_rng(0).normal(size=(n, *shape))
    with pytest.raises(SeenError):
        LDMClassifier(random_state=0).fit(x, np.arange(n) % 2)


def test_the_way_of_training_is_the_users(wine, fitted):
    x, y = wine
    small(optimizer="adamw", schedule="constant", clip_norm=1.0, weight_decay=0.1, batch_size=20).fit(x, y)
    found = fitted[-1][1]["settings"]
    assert (found.optimizer, found.schedule, found.lr) == ("adamw", "constant", 0.001)
    assert (found.clip_norm, found.weight_decay, found.batch_size) == (1.0, 0.1, 20)

    def rate(epoch):
        return 0.5**epoch

    def noisy(batch):
        return batch + 0.01 * torch.randn_like(batch)

    classifier = small(optimizer=torch.optim.Adagrad, schedule=rate, augment=noisy).fit(x, y)
    assert [e.lr for e in classifier.history_] == pytest.approx([0.01 * 0.5**e for e in range(8)])
    assert fitted[-1][1]["augment"] is noisy


def test_patience_holds_samples_back_and_keeps_the_best_epoch(wine, fitted, says):
    x, y = wine
    classifier = small(epochs=60, patience=2, validation_share=0.2).fit(x, y)
    (_, (inputs, labels)), options = fitted[-1]
    validated = options["validation"][1]
    assert len(labels) + len(validated) == len(y)
    assert torch.bincount(validated).tolist() == [12, 14, 10]
    assert len(classifier.history_) == classifier.best_epoch_ + 3 < 60
    assert inputs.mean(0).abs().max() < 1e-5  # the statistics are of the training part alone
    assert small().fit(x, y).best_epoch_ is None
    with says(InputError):
        small(patience=2, validation_share=1).fit(x, y)


def test_weights_of_classes_and_samples(wine, fitted):
    x, y = wine
    plain = small().fit(x, y).predict_proba(x)
    assert fitted[-1][1]["sample_weight"] is None
    np.testing.assert_array_equal(small().fit(x, y, sample_weight=np.full(len(y), 3.0)).predict_proba(x), plain)
    counts = np.bincount(y)
    balanced = small(class_weight="balanced").fit(x, y, sample_weight=np.arange(len(y))).predict_proba(x)
    np.testing.assert_allclose(fitted[-1][1]["sample_weight"], len(y) / (3 * counts[y]) * np.arange(len(y)))
    assert not np.allclose(balanced, plain)
    only = small(epochs=20, class_weight={0: 0.0, 2: 0.0}).fit(x, y)
    assert (only.predict(x) == 1).all()
    with pytest.raises(ValueError, match="Negative values in data"):
        small().fit(x, y, sample_weight=-np.ones(len(y)))


def test_weights_are_the_callers_and_stay_as_they_are(wine, fitted):
    pandas, (x, y) = pytest.importorskip("pandas"), wine
    weights = np.arange(1.0, len(y) + 1)
    for given in (weights, pandas.Series(weights)):
        small(class_weight="balanced").fit(x, y, sample_weight=given)
        np.testing.assert_array_equal(given, np.arange(1.0, len(y) + 1))
    first, second = (options["sample_weight"] for _, options in fitted[-2:])
    assert torch.equal(first, second)


def test_samples_without_a_label(wine, fitted):
    x, y = wine
    some = np.where(np.arange(len(y)) % 5, -1, y + 3)
    with pytest.warns(UserWarning, match=f"{(some == -1).sum()} of {len(y)} samples are labelled -1, which means"):
        classifier = LDMClassifier(random_state=0, class_weight="balanced").fit(x, some)
    assert classifier.classes_.tolist() == [3, 4, 5]
    assert (classifier.predict(x) == y + 3).mean() > 0.9
    labels = fitted[-1][0][1][1]
    assert labels.tolist() == np.where(np.arange(len(y)) % 5, -1, y).tolist()
    with pytest.warns(UserWarning, match="labelled -1"):  # as pandas gives integers that may be missing
        patient = small(patience=2, validation_share=0.4).fit(x, some.astype(float))
    assert patient.classes_.tolist() == [3, 4, 5]
    assert (fitted[-1][1]["validation"][1] >= 0).all()
    assert patient.best_epoch_ is not None
    signs = small().fit(x, np.where(y == 1, 1, -1))  # two classes: -1 is one of them
    assert signs.classes_.tolist() == [-1, 1]
    assert set(signs.predict(x)) == {-1, 1}
    assert small().fit(x, np.array(["a", "-1", "b"])[y]).classes_.tolist() == ["-1", "a", "b"]


def test_strength_and_coupling_are_the_methods(wine, fitted):
    x, y = wine
    small().fit(x, y)
    assert fitted[-1][1]["method"] == Method("ldmnet")
    classifier = small(strength=0.1, coupling=2.0, n_neighbors=5).fit(x, y)
    assert fitted[-1][1]["method"] == Method("ldmnet", strength=0.1, coupling=2.0, n_neighbors=5, sigma_neighbor=5)
    assert classifier.lambda_tilde_ == pytest.approx(classifier.mu_ / 2)


def test_an_infinite_coupling_is_the_control(wine, fitted):
    x, y = wine
    classifier = LDMClassifier(coupling=math.inf, random_state=0).fit(x[::2], y[::2])
    assert fitted[-1][1]["method"] == Method("control")
    assert classifier.mu_ > 0
    assert classifier.lambda_tilde_ == 0
    assert all(update.energy == 1 for update in classifier.regularizer_.log)
    assert classifier.score(x[1::2], y[1::2]) > 0.93


def test_a_training_that_ended_badly_warns(wine):
    with pytest.warns(BadEndWarning, match="^training ended badly: "):
        small(epochs=1, lr=1e-12).fit(*wine)


@pytest.mark.parametrize(
    "options",
    [
        {"strength": "big"},
        {"strength": 0},
        {"coupling": 0.0},
    ],
)
def test_bad_strengths(wine, options, says):
    with says(InputError):
        small(**options).fit(*wine)


def test_arrays_that_cannot_be_written_are_read_without_a_warning():
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    x[:, 0] += 3 * y
    fitted = LDMClassifier(epochs=5, coupling=math.inf, random_state=0).fit(x, y)
    wanted = fitted.predict_proba(x)
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(fitted.predict_proba(x), wanted)


def test_a_module_in_double_precision_predicts_too(wine):
    X, y = wine[:2]
    torch.manual_seed(0)
    model = small(module=mlp(X.shape[1], 3).double(), epochs=2).fit(X, y)
    assert model.predict_proba(X).shape == (len(X), 3)
    assert model.transform(X).dtype == np.float64


@pytest.mark.parametrize(
    "method", ["none", "weight_decay", "dropout", "control", "mixup", "t_vmf", "ldmnet+sam", "ldmnet+ensemble:2"]
)
def test_any_method_by_name(method):
    x, y = load_iris(return_X_y=True)
    model = LDMClassifier(method=method, epochs=15, hidden=(16, 16), random_state=0).fit(x, y)
    assert model.score(x, y) > 0.85
    pulls = method.startswith(("ldmnet", "control"))
    assert (model.regularizer_ is not None) == (model.mu_ is not None) == pulls
    assert model.transform(x).shape == (len(x), 32 if "ensemble" in method else 16)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


def test_a_method_that_is_none_and_numbers_that_are_not_its_own_are_refused():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match="there is no method 'lasso'"):
        LDMClassifier(method="lasso").fit(x, y)
    with pytest.raises(InputError, match="has no strength"):
        LDMClassifier(method="mixup", strength=0.3).fit(x, y)
    with pytest.raises(InputError, match="start from different weights"):
        LDMClassifier(mlp(4, 3), method="ensemble").fit(x, y)
