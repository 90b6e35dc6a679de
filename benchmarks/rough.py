"""What neighbors="auto" does to alpha: the neighbours that it misses, and the tolerance of its solve, one at a time.

python benchmarks/rough.py --n 54000

Both errors are taken on features two epochs apart in training, so that auto follows its lists as it does in use.
"""

from __future__ import annotations

import torch
from digits import training_set
from measure import arguments, show
from overhead import printed

from ldmnet import ManifoldRegularizer, Method, TrainSettings, fit, sweep
from ldmnet.networks import initialize, mnist_net

EPOCHS = 2  # before the features that are searched first, and again before those that are compared
SOLVED = 1e-6  # a tolerance that leaves nothing to see


def trained_features(x, y, method: Method, lr: float) -> list[torch.Tensor]:
    """Features of the whole set at two updates of one training."""
    model = mnist_net()
    initialize(model, "gaussian", 0)
    found = []
    for _ in range(2):
        fit(model, (x, y), method=method, settings=TrainSettings(epochs=EPOCHS, lr=lr, lr_drop_after=1.0))
        found.append(sweep(model, x, layer="features"))
    return found


def errors(n: int, strengths: list[float], tolerances: list[float]) -> list[dict[str, object]]:
    """One row for each coupling mu / lambda_tilde and approximation."""
    x, y, source = training_set("mnist", n)
    lr, mu, lambda_tilde = printed("mnist", n)
    before, after = trained_features(x, y, Method("ldmnet", mu=mu, lambda_tilde=lambda_tilde, neighbors="auto"), lr)
    rows: list[dict[str, object]] = []
    for coupling in strengths:

        def alpha(neighbors="exact", tol=SOLVED, coupling=coupling):
            options = {"mu": mu, "lambda_tilde": mu / coupling, "neighbors": neighbors, "tol": tol}
            regularizer = ManifoldRegularizer(x, y, **options)
            if neighbors == "auto":  # only the lists are kept: Z is zero for all
                regularizer.step(before)
                nothing = dict.fromkeys(("target", "Z", "running", "visits"))
                state = {**regularizer.state_dict(), **nothing}
                regularizer = ManifoldRegularizer(x, y, **options)
                regularizer.load_state_dict(state)
            update = regularizer.step(after)
            return regularizer.alpha, update

        truth, _ = alpha()
        move = float(torch.linalg.vector_norm(truth - after))
        size = float(torch.linalg.vector_norm(truth - truth.mean(0)))
        tried = {"missing neighbours": {"neighbors": "auto"}} | {f"tol {tol:g}": {"tol": tol} for tol in tolerances}
        for name, options in tried.items():
            found, update = alpha(**options)
            error = float(torch.linalg.vector_norm(found - truth))
            rows.append(
                {
                    "n": n,
                    "images": source,
                    "mu / lambda": coupling,
                    "approximation": name,
                    "recall": update.recall,
                    "products": update.solver_steps,
                    "error / |alpha|": error / size,
                    "error / |alpha - f|": error / move,
                }
            )
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], [54000])
    parser.add_argument("--tol", type=float, nargs="*", default=[1e-2, 1e-3], help="tolerances to try")
    parser.add_argument("--coupling", type=float, nargs="*", default=[10.0, 0.2], help="values of mu / lambda_tilde")
    options = parser.parse_args()
    rows = [row for n in options.n for row in errors(n, options.coupling, options.tol)]
    show("What the approximations of neighbors='auto' do to alpha", rows, options.json)


if __name__ == "__main__":
    main()
