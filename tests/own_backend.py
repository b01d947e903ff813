"""A backend of one's own, made as docs/design.md says: it differs from ours in one sign."""

from torch import Tensor

from mt_cli.model.scratch_backend import ScratchBackend


class OwnBackend(ScratchBackend):
    """Our layers, whose memory has the other sign."""

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """See `TransformerBackend`."""
        return -super().encode(src, src_mask)
