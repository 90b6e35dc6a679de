import pytest
import torch

from ldmnet.graph.groups import Groups

LABELS = torch.tensor([4, -1, 4, 9, -1, 4, 9, 0])


def test_a_group_is_a_slice_of_the_sorted_order():
    groups = Groups(LABELS)
    assert groups.sizes == [2, 1, 3, 2]
    assert groups.starts == [0, 2, 3, 6]
    assert groups.order.tolist() == [1, 4, 7, 0, 2, 5, 3, 6]  # stable within a group


def test_scatter_undoes_the_order():
    groups, x = Groups(LABELS), torch.randn(8, 3)
    assert torch.equal(groups.scatter(x[groups.order]), x)


@pytest.mark.parametrize("most", [1, 4, 8, 10**6])
def test_buckets_hold_every_row_once_and_one_size_each(most):
    groups = Groups(LABELS)
    seen = []
    for size, rows in groups.buckets(most):
        assert rows.shape[1] == size
        assert len(rows) == 1 or rows.numel() * size <= most
        for row in rows:
            assert len(set(LABELS[groups.order[row]].tolist())) == 1
            assert (row.diff() == 1).all()
        seen += rows.flatten().tolist()
    assert sorted(seen) == list(range(8))
