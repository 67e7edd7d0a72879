"""What several networks share."""

from __future__ import annotations

from torch import Tensor, nn

from accordion_bench.errors import UserError


def check_size(model: str, size: int, halvings: int) -> None:
    """Refuse images that would shrink below one pixel.

    Args:
        model: the network's name, for the message.
        size: height and width of the images in pixels.
        halvings: how often the network halves its maps.

    Raises:
        UserError: size < 2 ** halvings.
    """
    smallest = 2**halvings
    if size < smallest:
        raise UserError(
            f"model '{model}' needs images of at least {smallest}x{smallest} pixels, got {size}x{size}; "
            "use larger images or, from 4x4 on, model=smallcnn"
        )


class GlobalMean(nn.Module):
    """Mean over the whole map, (batch, channels, height, width) -> (batch, channels), whatever its size.

    On 32x32 images this is the fixed average pool of the published networks.
    """

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))
