"""Augmentation and normalisation of whole batches on their device, equal to torchvision's functions image by image.

Shape suffixes: B images, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random crop, then horizontal flip, then rotation, in the order of the code published with the paper.

    Attributes:
        crop_padding: black pixels around the image before a crop of its own size; 0 for no crop.
        flip: mirror with probability one half.
        rotate_degrees: rotate by up to this angle either way; 0 for none.
    """

    crop_padding: int
    flip: bool
    rotate_degrees: float

    def __call__(self, images_BCHW: Tensor, generator: torch.Generator) -> Tensor:
        """A new (B, C, H, W) uint8 batch.

        The draws are made with a CPU generator and do not depend on device or settings: the same generator crops alike
        whether images are flipped or not.
        """
        batch, device = len(images_BCHW), images_BCHW.device
        places_B2 = torch.rand(batch, 2, generator=generator)
        flips_B = torch.rand(batch, generator=generator) < 0.5
        turns_B = torch.rand(batch, generator=generator) * 2 - 1
        if self.crop_padding:
            offsets_B2 = (places_B2 * (2 * self.crop_padding + 1)).long()
            images_BCHW = crop(images_BCHW, offsets_B2.to(device), self.crop_padding)
        if self.flip:
            images_BCHW = flip(images_BCHW, flips_B.to(device))
        if self.rotate_degrees:
            images_BCHW = rotate(images_BCHW, (turns_B * self.rotate_degrees).to(device))
        return images_BCHW


def crop(images_BCHW: Tensor, offsets_B2: Tensor, padding: int) -> Tensor:
    """Pad with zeros on all sides and cut the original size out of each image.

    Args:
        offsets_B2: top and left edge of each cut in the padded image, 0 .. 2 padding, int64.
    """
    batch, _, height, width = images_BCHW.shape
    padded = F.pad(images_BCHW, (padding, padding, padding, padding))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, 2p+1, 2p+1, H, W)
    rows = torch.arange(batch, device=images_BCHW.device)
    return windows[rows, :, offsets_B2[:, 0], offsets_B2[:, 1]]


def flip(images_BCHW: Tensor, flips_B: Tensor) -> Tensor:
    """Mirror left and right where flips_B (bool) is true."""
    return torch.where(flips_B[:, None, None, None], images_BCHW.flip(-1), images_BCHW)


def rotate(images_BCHW: Tensor, degrees_B: Tensor) -> Tensor:
    """Rotate counter-clockwise about the centre: nearest pixel, same size, black corners."""
    batch, _, height, width = images_BCHW.shape
    radians_B = degrees_B * (math.pi / 180)
    cos_B, sin_B, zero_B = radians_B.cos(), radians_B.sin(), torch.zeros_like(radians_B)
    # Grid coordinates run from -1 to 1 along both sides, whatever their lengths: hence the aspect ratio.
    theta_B23 = torch.stack(
        [cos_B, -sin_B * (height / width), zero_B, sin_B * (width / height), cos_B, zero_B], dim=1
    ).view(batch, 2, 3)
    grid_BHW2 = F.affine_grid(theta_B23, list(images_BCHW.shape), align_corners=False)
    turned = F.grid_sample(
        images_BCHW.to(grid_BHW2.dtype), grid_BHW2, mode="nearest", padding_mode="zeros", align_corners=False
    )
    return turned.to(images_BCHW.dtype)


def normalise(images_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 pixels -> (pixel / 255 - mean) / std, per channel, in the default floating-point type."""
    dtype = torch.get_default_dtype()
    mean_C11 = torch.tensor(mean, dtype=dtype, device=images_BCHW.device)[:, None, None]
    std_C11 = torch.tensor(std, dtype=dtype, device=images_BCHW.device)[:, None, None]
    return images_BCHW.to(dtype).div_(255).sub_(mean_C11).div_(std_C11)
