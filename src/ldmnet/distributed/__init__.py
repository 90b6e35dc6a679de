"""The same update by several processes over torch.distributed; see docs/scale.md."""

from ldmnet.distributed.launch import same_buffers
from ldmnet.distributed.targets import Sharing
from ldmnet.distributed.travel import Share
from ldmnet.distributed.world import World, world_of

__all__ = ["Share", "Sharing", "World", "same_buffers", "world_of"]
