import pytest
import torch

from clouds import cloud
from ldmnet import knn, self_tuned_weights
from ldmnet.graph.sparse import WIDE, multiplier


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, WIDE - 1, WIDE, WIDE + 9])
def test_both_kernels_are_the_dense_product(columns, dtype):
    W = self_tuned_weights(knn(cloud(60, 4, 0, dtype), 8), 4)
    x = torch.randn(60, columns, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = multiplier(W.crow_indices(), W.col_indices(), W.values(), columns)(x)
    torch.testing.assert_close(found, W.to_dense() @ x)
