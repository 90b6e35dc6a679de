import numpy as np
import pytest
import torch

from ldmnet.errors import InputError
from ldmnet.graph.groups import Groups, checked_groups

LABELS = torch.tensor([4, -1, 4, 9, -1, 4, 9, 0])


def test_a_group_is_a_slice_of_the_sorted_order():
    groups = Groups(LABELS)
    assert groups.sizes == [1, 3, 2]
    assert groups.starts == [0, 1, 4]
    assert groups.order.tolist() == [7, 0, 2, 5, 3, 6]  # stable within a group
    assert groups.rank.tolist() == [1, -1, 2, 4, -1, 3, 5, 0]


def test_scatter_undoes_the_order():
    groups, x = Groups(LABELS), torch.randn(8, 3)
    assert torch.equal(groups.gather(x), x[groups.order])
    back = groups.scatter(groups.gather(x))
    assert torch.equal(back[LABELS >= 0], x[LABELS >= 0])
    assert back[LABELS < 0].isnan().all()  # rows of no group
    assert (groups.scatter(groups.gather(x), -1)[LABELS < 0] == -1).all()
    everyone = Groups(LABELS + 1)
    assert torch.equal(everyone.scatter(x[everyone.order]), x)


def test_the_mean_of_each_rows_group():
    groups, x = Groups(LABELS), torch.randn(8, 3, dtype=torch.float64)
    found = groups.scatter(groups.means(groups.gather(x)))
    for label in (0, 4, 9):
        mine = label == LABELS
        torch.testing.assert_close(found[mine], x[mine].mean(0).expand(int(mine.sum()), 3))


@pytest.mark.parametrize("most", [1, 4, 8, 10**6])
def test_buckets_hold_every_row_of_a_group_once_and_one_size_each(most):
    groups = Groups(LABELS)
    seen = []
    for size, rows in groups.buckets(most):
        assert rows.shape[1] == size
        assert len(rows) == 1 or rows.numel() * size <= most
        for row in rows:
            assert len(set(LABELS[groups.order[row]].tolist())) == 1
            assert (row.diff() == 1).all()
        seen += rows.flatten().tolist()
    assert sorted(seen) == list(range(6))


def test_a_bucket_has_so_many_entries_at_most():
    groups = Groups(torch.arange(50) % 10)  # ten groups of five: 25 entries each
    assert [len(rows) for _, rows in groups.buckets(60)] == [2] * 5


def checked(groups, n=3):
    return checked_groups(groups, n, torch.device("cpu"))


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        (torch.tensor([4, -1, 9], dtype=torch.int32), [4, -1, 9]),
        ([4, -1, 9], [4, -1, 9]),
        (np.array([4, 0, 9], dtype=np.uint8), [4, 0, 9]),
        (np.array([4.0, -1.0, 9.0]), [4, -1, 9]),
        (torch.tensor([4.0, 0.0, 9.0]), [4, 0, 9]),
        (np.array([4, 0, 9], dtype=object), [4, 0, 9]),
        ([torch.tensor(4), torch.tensor(0), torch.tensor(9)], [4, 0, 9]),
        ([True, False, True], [1, 0, 1]),
        (torch.tensor([True, False, True]), [1, 0, 1]),
        (["dog", "cat", "dog"], [1, 0, 1]),
        (np.array(["dog", "cat", "ant"]), [2, 1, 0]),
        (np.array(["dog", "cat", "ant"], dtype=object), [2, 1, 0]),
        (np.array([b"dog", b"cat", b"ant"]), [2, 1, 0]),
    ],
)
def test_labels_of_any_kind_become_integers(groups, wanted):
    labels = checked(groups)
    assert labels.dtype == torch.int64
    assert labels.tolist() == wanted


def test_columns_of_pandas():
    pandas = pytest.importorskip("pandas")
    for kind in ("Series", "Categorical"):
        assert checked(getattr(pandas, kind)(["dog", "cat", "dog"])).tolist() == [1, 0, 1]
        with pytest.raises(InputError, match=r"all of one kind, got \w+ and str\. Where samples have no label"):
            checked(getattr(pandas, kind)(["dog", None, "dog"]))
    assert checked(pandas.Series([4, 0, 9], dtype="Int64", index=[7, 8, 9])).tolist() == [4, 0, 9]


NO_LABEL = "Where samples have no label, number the classes from 0 and write -1 there."
KINDS = "groups must be whole numbers, booleans or strings"


@pytest.mark.parametrize(
    "groups",
    [
        5,
        "dog",
        ["dog", "cat"],
        np.zeros((3, 1)),
        [0, 1, float("nan")],
        [0, 1, float("inf")],
        [0, 1.5, 2],
        [0, -2, 2],
        ["dog", None, "cat"],
        ["dog", float("nan"), "cat"],
        {"dog": 1},
        torch.zeros(3, dtype=torch.complex64),
        np.zeros(3, dtype="datetime64[D]"),
    ],
)
def test_labels_that_cannot_be_used(groups, says):
    with says(InputError):
        checked(groups)


def test_lists_of_several_lengths():
    with pytest.raises(InputError, match=f"^{KINDS}, one per sample, got list: "):
        checked([[0], [1, 2], [3]])
