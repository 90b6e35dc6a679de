import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tables_in_readme_and_docs_are_those_of_the_records():
    command = [sys.executable, "scripts/refresh_tables.py", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "<!-- table: digits5k -->" in (ROOT / "README.md").read_text()


def test_the_loop_in_the_readme_runs_and_learns():
    import torch
    from torch import nn

    text = (ROOT / "README.md").read_text()
    loop = text.split("```python\n")[1].split("```")[0]
    assert loop.count("\n") <= 13
    torch.manual_seed(0)  # the weights and the README's own batches
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.randn(3, 8, generator=draw)[y] * 2 + torch.randn(60, 8, generator=draw)
    model = nn.ModuleDict({"features": nn.Sequential(nn.Linear(8, 16), nn.ReLU()), "head": nn.Linear(16, 3)})
    model.features, model.head = model["features"], model["head"]
    model.forward = lambda batch: model.head(model.features(batch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    names = {"torch": torch, "x": x, "y": y, "model": model, "optimizer": optimizer}
    exec(loop.replace("range(300)", "range(60)"), names)  # the README is ours
    assert (model.head(model.features(x)).argmax(1) == y).float().mean() > 0.9
    assert len(names["regularizer"].log) == 30
