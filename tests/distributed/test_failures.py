"""A process that dies or hangs: the others end soon and say so, no checkpoint is damaged, and training resumes."""

import pytest
import torch
import victims
from workers import free_port, fresh_processes

from ldmnet.training.checkpoint import read_checkpoint


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What training without an accident ends with."""
    folder = tmp_path_factory.mktemp("whole")
    _, codes = victims.run(fresh_processes(), free_port(), folder, 2)
    assert codes == [0, 0]
    return torch.load(folder / "result-0.pt", weights_only=True)


@pytest.mark.parametrize(
    ("victim", "when", "count"),
    [(1, "message", 9), (0, "message", 60), (1, "message", 150), (0, "save", 3), (0, "epoch", 3)],
)
def test_a_process_that_dies(tmp_path, whole, victim, when, count):
    spent, codes = victims.run(fresh_processes(), free_port(), tmp_path, 2, victim, victims.die, when, count)
    assert codes[victim] == -9
    assert codes[1 - victim] == 1
    assert spent < 60
    assert "lost the others" in (tmp_path / f"ended-{1 - victim}").read_text()
    if (tmp_path / "checkpoint.pt").exists():
        assert 0 < read_checkpoint(tmp_path / "checkpoint.pt")["epoch"] < victims.EPOCHS
    size = 1 if when == "epoch" else 2
    _, codes = victims.run(fresh_processes(), free_port(), tmp_path, size)
    assert codes == [0] * size
    weights, target, epochs = torch.load(tmp_path / "result-0.pt", weights_only=True)
    assert epochs == victims.EPOCHS
    close = 0 if size == 2 else 2e-2  # as many processes: the same bits
    for name, value in weights.items():
        torch.testing.assert_close(value, whole[0][name], rtol=close, atol=close)
    torch.testing.assert_close(target, whole[1], rtol=close, atol=close)


def test_a_process_that_hangs(tmp_path):
    spent, codes = victims.run(
        fresh_processes(), free_port(), tmp_path, 2, 1, victims.hang, "message", 40, timeout=3.0, limit=40.0
    )
    assert codes[0] == 1
    assert "lost the others" in (tmp_path / "ended-0").read_text()
    assert spent < 40
