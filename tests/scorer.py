"""A network as the Hugging Face trainer wants one."""

from torch import nn
from torch.nn.functional import cross_entropy

from ldmnet.networks import initialize, mlp


class Scorer(nn.Module):
    """An MLP that returns its loss where it is given labels."""

    def __init__(self):
        super().__init__()
        self.net = mlp(6, 3, (16, 8))
        initialize(self.net, "he", 0)

    def forward(self, values, labels=None):
        logits = self.net(values)
        return {"logits": logits} if labels is None else {"loss": cross_entropy(logits, labels), "logits": logits}
