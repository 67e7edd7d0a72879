"""WikiText-2 (Merity et al. 2016), or a user's own three texts. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.errors import UserError
from accordion_bench.foreign import read_bytes
from accordion_bench.workloads.datasets.base import TextData
from accordion_bench.workloads.datasets.files import OfficialFiles
from accordion_bench.workloads.datasets.text import encode_splits, text_of

if TYPE_CHECKING:
    from accordion_bench.config.schema import DatasetConfig

# The original address is gone. The mirrors may pack the archive anew, so the texts' own checksums decide.
WIKITEXT2_FILES = OfficialFiles(
    title="WikiText-2",
    folder="wikitext-2",
    digests={
        "wiki.train.tokens": "863f29c46ef9d167fff4940ec821195882fe29d1",
        "wiki.valid.tokens": "0418625c8b4da6e4b5c7a0b9e78d4ae8f7ee5422",
        "wiki.test.tokens": "c7b8ce0aa086fb34dab808c5c49224211eb2b172",
    },
    algorithm="sha1",
    archive="wikitext-2-v1.zip",
    archive_digest=None,
    mirrors=(
        "https://wikitext.smerity.com/wikitext-2-v1.zip",
        "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/wikitext-2/wikitext-2-v1.zip",
        "https://web.archive.org/web/2022id_/https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
    ),
    instead="name your own texts with dataset.train_file, dataset.valid_file and dataset.test_file",
)


def wikitext2(
    config: DatasetConfig,
    *,
    train_file: str | None = None,
    valid_file: str | None = None,
    test_file: str | None = None,
    published_tokens: bool = False,
) -> TextData:
    """The three splits as token numbers; see text.Tokenizer for what a token is.

    Args:
        config: root and verify are used; tokens are cached in <root>/wikitext-2/cache.
        train_file, valid_file, test_file: a text to use instead of an official file, taken as it is.
        published_tokens: tokens exactly as in the code published with the paper.

    Raises:
        UserError: if texts cannot be had, are not the official ones (unless dataset.verify=false), are not usable, or
            if the training text is also used to evaluate.
    """
    return load(
        WIKITEXT2_FILES, config, {"train": train_file, "valid": valid_file, "test": test_file}, published_tokens
    )


def load(
    official: OfficialFiles, config: DatasetConfig, own_files: dict[str, str | None], published_tokens: bool
) -> TextData:
    """`wikitext2` from given official files; own_files: split -> a user's file or None."""
    root = Path(config.root).expanduser()
    splits = {
        split: text_of(_own_bytes(path, split), f"dataset.{split}_file={path}")
        for split, path in own_files.items()
        if path is not None
    }
    if len(splits) < len(own_files):
        folder = official.ensure(root, config.verify)
        for name, content in official.contents(root, config.verify):
            split = name.split(".")[1]
            if split not in splits:
                splits[split] = text_of(content, str(folder / name))
    for split in ("valid", "test"):
        if splits[split] == splits["train"]:
            raise UserError(
                f"the training text is also the {split} text; the vocabulary and the model must not see it: "
                f"set dataset.train_file or dataset.{split}_file to another text"
            )
    return encode_splits(splits, published_tokens, root / official.folder / "cache")


def _own_bytes(path: str, split: str) -> bytes:
    try:
        return read_bytes(Path(path).expanduser())
    except OSError as error:
        raise UserError(
            f"dataset.{split}_file must be a text file that can be read, got {path} ({error.strerror})"
        ) from None
