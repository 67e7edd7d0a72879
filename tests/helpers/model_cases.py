"""The networks under test and how to build them without memory."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch
from shared_data import shared
from torch import nn

from accordion_bench.workloads.models import MODELS, build_model

IMAGE_MODELS = sorted(name for name, entry in MODELS.items() if entry.kind == "image")


def image_facts(classes: int = 10, channels: int = 3, size: int = 32) -> dict[str, Any]:
    return {"kind": "image", "channels": channels, "size": size, "classes": classes}


def text_facts(vocabulary: int) -> dict[str, Any]:
    return {"kind": "text", "vocabulary": vocabulary}


def on_meta(name: str, facts: dict[str, Any], **settings: Any) -> nn.Module:
    """The network without memory or initial values: enough for shapes."""
    with torch.device("meta"):
        return build_model(name, facts, settings)


# name, classes (or words), settings -> parameters, tensors of two or more dimensions, 1-D tensors. Paper,
# Tables 8 to 10; the 11,389,726 of SENet is the network whose data sent Tables 1 and 3 show.
COUNTS = [
    ("resnet18", 10, {}, 11_173_962, 21, 41),
    ("resnet18", 100, {}, 11_220_132, 21, 41),
    ("vgg19bn", 10, {}, 20_565_834, 19, 51),
    ("vgg19bn", 100, {}, 39_327_652, 19, 51),
    ("senet", 10, {"variant": "preact"}, 11_260_354, 37, 51),
    ("senet", 100, {"variant": "post"}, 11_436_256, 37, 77),
    ("senet", 10, {"variant": "post"}, 11_389_726, 37, 77),
    ("wideresnet", 10, {}, 36_489_290, 29, 79),
    ("wideresnet", 100, {}, 36_546_980, 29, 79),
    ("densenet", 10, {}, 1_000_618, 121, 241),
    ("densenet", 100, {}, 1_035_268, 121, 241),
    ("googlenet", 10, {}, 6_166_250, 65, 193),
    ("googlenet", 100, {}, 6_258_500, 65, 193),
    ("lstm", 34_069, {"layers": 2}, 28_949_319, 5, 5),
    ("lstm", 28_869, {"layers": 3}, 28_949_319, 7, 7),
]


def network(name: str, classes: int, settings: dict[str, Any]) -> nn.Module:
    facts = text_facts(classes) if MODELS[name].kind == "text" else image_facts(classes)
    return on_meta(name, facts, **settings)


def reference_sections() -> dict[str, tuple[Counter[tuple[int, ...]], list[tuple[int, ...]]]]:
    """Heading -> (how often each shape occurs, the shapes by first appearance), from the reference description."""
    text_of_all = shared("reference", "models.md").read_text(encoding="utf-8")
    sections = {}
    for text in text_of_all.split("\n## ")[1:]:
        rows = re.findall(r"^\| ([\dx]+) \| (\d+) \| \d+ x \d+ \|", text, flags=re.MULTILINE)
        line = re.search(r"^1-D: (.*)$", text, flags=re.MULTILINE)
        if line is None:
            continue
        rows += re.findall(r"\((\d+)\)x(\d+)", line[1])
        shapes = [(tuple(map(int, shape.split("x"))), int(count)) for shape, count in rows]
        sections[text.partition("\n")[0]] = (Counter(dict(shapes)), [shape for shape, _ in shapes])
    return sections
