"""How near each phase of an update is to what the machine can do, measured in the same run.

    python benchmarks/roofline.py --n 7000,54000

The machine's roofs: the rate of a large float32 matrix product, and the bandwidth of a large copy. The neighbours are
bound by the former, the conjugate gradients by the latter.
"""

from __future__ import annotations

from typing import Any

import torch
from measure import arguments, medians, show
from points import class_points

from ldmnet import PointIntegralSystem, pcg, self_tuned_weights
from ldmnet.graph.groups import Groups
from ldmnet.graph.neighbors import NeighborSearch

K, D_FEAT = 20, 500


def measured(n: int, rounds: int) -> list[dict[str, Any]]:
    inputs, features, labels = class_points(n, d_feat=D_FEAT)
    groups = Groups(labels)
    search = NeighborSearch(groups, K, inputs)
    features = features[groups.order]
    system = PointIntegralSystem(self_tuned_weights(search(features)), 10.0, "lumped")
    blocks = [system.block(a, a + m) for a, m in zip(groups.starts, groups.sizes, strict=True)]
    steps = pcg(blocks[0], features[: groups.sizes[0]]).steps

    def solve() -> None:
        for start, size, block in zip(groups.starts, groups.sizes, blocks, strict=True):
            pcg(block, features[start : start + size])

    square = torch.randn(4096, 4096)
    long = torch.randn(64 * 2**20)
    out = torch.empty_like(long)
    taken = medians(
        {
            "gemm": lambda: square @ square,
            "copy": lambda: out.copy_(long),
            "neighbours": lambda: search(features),
            "solve": solve,
        },
        rounds,
    )
    gemm = 2 * 4096**3 / taken["gemm"]
    bandwidth = 2 * long.nbytes / taken["copy"]
    flops = sum(2 * m * m * (D_FEAT + 1) for m in groups.sizes)
    entries = system.W.values().numel()
    # what conjugate gradients must move at least: five arrays read or written a step, and W once a chunk of columns
    traffic = (steps + 1) * (5 * features.nbytes + entries * 8)
    return [
        {"n": n, "phase": "machine: product", "seconds": taken["gemm"], "rate": f"{gemm / 1e9:.0f} GFLOP/s"},
        {"n": n, "phase": "machine: copy", "seconds": taken["copy"], "rate": f"{bandwidth / 1e9:.1f} GB/s"},
        {
            "n": n,
            "phase": "neighbours",
            "seconds": taken["neighbours"],
            "rate": f"{flops / taken['neighbours'] / 1e9:.0f} GFLOP/s",
            "share of the roof": flops / taken["neighbours"] / gemm,
        },
        {
            "n": n,
            "phase": f"conjugate gradients, {steps} steps",
            "seconds": taken["solve"],
            "rate": f"{traffic / taken['solve'] / 1e9:.1f} GB/s",
            "share of the roof": traffic / taken["solve"] / bandwidth,
        },
    ]


def main() -> None:
    options = arguments(__doc__.splitlines()[0], [7000, 54000]).parse_args()
    rows = [row for n in options.n for row in measured(n, options.rounds)]
    show("Each phase against the machine's own roofs", rows, options.json)


if __name__ == "__main__":
    main()
