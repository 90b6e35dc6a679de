"""How near each phase of an update is to what the machine can do, measured in the same run.

    python benchmarks/roofline.py --n 7000,54000

The machine's roofs: the rate of a large float32 matrix product, and the bandwidth of a large copy. A full search is
bound by the former. Ranking candidates and Chebyshev's iteration are bound by the latter: they are charged with every
number that they read or write, gathered ones each time, so that a share above one means that the cache served some.
"""

from __future__ import annotations

from typing import Any

import torch
from measure import arguments, medians, show
from points import class_points

from ldmnet import PointIntegralSystem, self_tuned_weights
from ldmnet.graph.candidates import CANDIDATES
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch
from ldmnet.pim.chebyshev import chebyshev

K, D_FEAT, COUPLING = 20, 500, 10.0
ARRAYS = 7  # read or written in a step of Chebyshev's iteration


def measured(n: int, rounds: int) -> list[dict[str, Any]]:
    inputs, features, labels = class_points(n, d_feat=D_FEAT)
    groups = Groups(labels)
    features = features[groups.order]
    ranking = NeighborSearch(groups, K, inputs)
    neighbors = ranking(features)
    full = NeighborSearch(groups, K, once=True)
    system = PointIntegralSystem(self_tuned_weights(neighbors), COUPLING, "lumped")
    blocks = [system.block(a, a + m) for a, m in zip(groups.starts, groups.sizes, strict=True)]
    steps = chebyshev(blocks[0], features[: groups.sizes[0]]).steps

    def iterate() -> None:
        for start, size, block in zip(groups.starts, groups.sizes, blocks, strict=True):
            chebyshev(block, features[start : start + size])

    square = torch.randn(4096, 4096)
    long = torch.randn(64 * 2**20)
    out = torch.empty_like(long)
    taken = medians(
        {
            "product": lambda: square @ square,
            "copy": lambda: out.copy_(long),
            "full search": lambda: full(features),
            "candidates ranked": lambda: ranking(features),
            "Chebyshev's iteration": iterate,
        },
        rounds,
    )
    roof = {"GFLOP/s": 2 * 4096**3 / taken["product"] / 1e9, "GB/s": 2 * long.nbytes / taken["copy"] / 1e9}
    entries = system.W.values().numel()
    work = {  # in units of 1e9
        "full search": ("GFLOP/s", sum(2 * m * m * (D_FEAT + 1) for m in groups.sizes) / 1e9),
        "candidates ranked": ("GB/s", n * CANDIDATES * (D_FEAT + 3) * 4 / 1e9),
        # a step gathers a row of u for each entry of W, and reads or writes arrays of the features' size
        "Chebyshev's iteration": ("GB/s", steps * (entries * (D_FEAT * 4 + 12) + ARRAYS * features.nbytes) / 1e9),
    }
    rows: list[dict[str, Any]] = [
        {"n": n, "phase": f"the machine: {name}", "seconds": taken[name], "rate": roof[unit], "unit": unit}
        for name, unit in (("product", "GFLOP/s"), ("copy", "GB/s"))
    ]
    for name, (unit, amount) in work.items():
        rate = amount / taken[name]
        row = {"n": n, "phase": name, "seconds": taken[name], "rate": rate, "unit": unit}
        rows.append({**row, "share of the roof": rate / roof[unit]})
    return rows


def main() -> None:
    options = arguments(__doc__.splitlines()[0], [7000, 54000]).parse_args()
    rows = [row for n in options.n for row in measured(n, options.rounds)]
    show("Each phase against the machine's own roofs", rows, options.json)


if __name__ == "__main__":
    main()
