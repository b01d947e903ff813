"""A backend of one's own, made as docs/design.md says: another norm, and a sign."""

import torch
from torch import Tensor, nn

from mt_cli.config.schema import ModelConfig
from mt_cli.model.scratch import ScratchBackend


class RmsNorm(nn.Module):
    """Zhang and Sennrich (2019), with a bias, so that its parameters are those of nn.LayerNorm."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """`x` (..., D) divided by its root mean square."""
        scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return x * scale * self.weight + self.bias


class OwnBackend(ScratchBackend):
    """Our layers with another norm, whose memory has the other sign."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        for module in list(self.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.LayerNorm):
                    setattr(module, name, RmsNorm(config.d_model))

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """See `TransformerBackend`."""
        return -super().encode(src, src_mask)
