"""Text -> tokens -> numbers: spaCy's blank English tokenizer, a vocabulary of the training split, a cache on disk."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from accordion_bench.errors import UserError
from accordion_bench.foreign import as_text
from accordion_bench.workloads.datasets.base import TextData

UNKNOWN, END, PAD = "<unk>", "<eos>", "<pad>"
LONGEST_WORD = 1000  # characters; nothing in WikiText comes near, so more means "not a text"
CACHE_FORMAT = 1


def text_of(content: bytes, where: str) -> str:
    """Decoded text that is worth tokenising, with "\n" at the end of each line whatever system wrote it.

    Raises:
        UserError: if it is not UTF-8, has no words, or a word of more than LONGEST_WORD characters.
    """
    try:
        text = as_text(content)
    except UnicodeDecodeError as error:
        raise UserError(f"{where} must be UTF-8 text, byte {error.start} is not; convert it") from None
    if not text.strip():
        raise UserError(f"{where} is empty; it must be a text, one sentence or paragraph a line")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_WORD and len(longest := max(line.split(), key=len)) > LONGEST_WORD:
            raise UserError(
                f"{where} must have words of at most {LONGEST_WORD} characters, "
                f"line {number} has one of {len(longest)}; is it a text?"
            )
    return text


class Tokenizer:
    """Lower-case tokens of spaCy's blank English pipeline; "<unk>" stays whole and every line ends in "<eos>".

    Args:
        published: keep spaCy's whitespace tokens (WikiText begins every line with a blank), as the code published with
            the paper does. Easy to predict, they lower the perplexity a little.
    """

    def __init__(self, published: bool) -> None:
        import spacy
        from spacy.symbols import ORTH

        self._spacy = cast(Any, spacy.blank("en").tokenizer)
        for token in (UNKNOWN, END):
            self._spacy.add_special_case(token, [{ORTH: token}])
        self._published = published
        self._words: dict[str, list[str]] = {}

    def tokens(self, text: str) -> list[str]:
        """All tokens of a text."""
        result: list[str] = []
        lines = text.split("\n")
        for line in lines if lines[-1] else lines[:-1]:
            result.extend(self._line(line))
            result.append(END)
        return result

    def _line(self, line: str) -> list[str]:
        words = line.split()
        leading: list[str] = []
        if self._published:
            if line.removeprefix(" ").removesuffix(" ") != " ".join(words):
                return self._split(line)  # spaCy makes tokens of runs of blanks in other places too
            leading = [" "] if line.startswith(" ") else []
        return leading + [token for word in words for token in self._word(word)]

    def _word(self, word: str) -> list[str]:
        """spaCy splits at blanks before all else, so a word is split alike wherever it stands: once is enough."""
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = self._split(word)
        return known

    def _split(self, text: str) -> list[str]:
        return [token.text.lower() for token in self._spacy(text)]


def build_vocabulary(tokens: Iterable[str], split: str, reserved: Sequence[str] = (UNKNOWN, END)) -> tuple[str, ...]:
    """Reserved tokens, then the others by falling frequency (ties in alphabetical order).

    Raises:
        UserError: if `split` is not "train": a vocabulary of other splits would leak what the model is tested on.
    """
    if split != "train":
        raise UserError(f"the vocabulary must be built from the training split, got the {split} split")
    counts = Counter(tokens)
    for token in reserved:
        counts.pop(token, None)
    return (*reserved, *sorted(counts, key=lambda token: (-counts[token], token)))


def encode(tokens: Sequence[str], vocabulary: Sequence[str]) -> NDArray[np.int32]:
    """(tokens,) int32 indices; a token outside the vocabulary becomes "<unk>"."""
    index = {token: number for number, token in enumerate(vocabulary)}
    unknown = index[UNKNOWN]
    return np.fromiter((index.get(token, unknown) for token in tokens), dtype=np.int32, count=len(tokens))


def encode_splits(splits: Mapping[str, str], published: bool, cache: Path) -> TextData:
    """Tokenise the texts of the splits train, valid and test; the second time read the numbers from the cache.

    Args:
        splits: split name -> text.
        published: see Tokenizer; it also reserves "<pad>", which that code's vocabulary has.
        cache: folder of the cache. A cache that cannot be written is a warning.
    """
    path = cache / f"tokens-{_key(splits, published)}.npz"
    cached = _read_cache(path)
    if cached is not None:
        return cached
    tokenizer = Tokenizer(published)
    tokens = {name: tokenizer.tokens(text) for name, text in splits.items()}
    reserved = (UNKNOWN, PAD, END) if published else (UNKNOWN, END)
    vocabulary = build_vocabulary(tokens["train"], "train", reserved)
    data = TextData(**{name: encode(part, vocabulary) for name, part in tokens.items()}, vocabulary=vocabulary)
    _write_cache(path, data)
    return data


def _key(splits: Mapping[str, str], published: bool) -> str:
    """Of everything that the tokens depend on."""
    parts = [importlib.metadata.version("spacy"), str(CACHE_FORMAT), str(published)]
    parts += [hashlib.sha256(splits[name].encode()).hexdigest() for name in ("train", "valid", "test")]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:20]


def _read_cache(path: Path) -> TextData | None:
    """None if there is no cache or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            vocabulary = tuple(json.loads(arrays["vocabulary"].tobytes()))
            return TextData(train=arrays["train"], valid=arrays["valid"], test=arrays["test"], vocabulary=vocabulary)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, UserError):
        return None


def _write_cache(path: Path, data: TextData) -> None:
    """Beside it, then renamed, so that a reader never sees half a file."""
    vocabulary = np.frombuffer(json.dumps(data.vocabulary).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, train=data.train, valid=data.valid, test=data.test, vocabulary=vocabulary)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(buffer.getvalue())
        os.replace(scratch, path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        warnings.warn(
            f"cannot cache tokens in {path.parent} ({error.strerror}); they are made anew each time", stacklevel=3
        )
