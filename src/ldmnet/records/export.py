"""A trained run as one ONNX file for other programs: samples as they were read in, probabilities out."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from ldmnet.errors import missing_extra
from ldmnet.files import written_whole
from ldmnet.records.userruns import TrainedRun


class Packaged(nn.Module):
    """Standardisation, network and softmax in one."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, run: TrainedRun) -> None:
        super().__init__()
        self.register_buffer("mean", run.standardize.mean)
        self.register_buffer("deviation", run.standardize.deviation)
        self.model = run.model

    def forward(self, x: Tensor) -> Tensor:
        """Samples (n, ...), pixels as 0..255, to probabilities (n, n_classes)."""
        out: Tensor = self.model(((x.double() - self.mean) / self.deviation).float())
        return out.softmax(1)


def export_onnx(run: TrainedRun, path: Path) -> Path:
    """Write an ONNX file with the input `samples`, of any number, and the output `probabilities`."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_extra("onnx with onnxscript", "onnx") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of libraries that this does not need
    with written_whole(path) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Packaged(run).eval(),
            (torch.zeros(2, *run.shape),),
            place,
            input_names=["samples"],
            output_names=["probabilities"],
            dynamic_shapes={"x": {0: torch.export.Dim("n")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return path
