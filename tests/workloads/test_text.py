"""Tokens, vocabulary, cache and the bad texts that must end in one line."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import spacy
from dataset_cases import dataset_config
from shared_data import shared
from spacy.symbols import ORTH
from spacy.tokenizer import Tokenizer as SpacyTokenizer

from accordion_bench.config.schema import DatasetConfig
from accordion_bench.errors import UserError
from accordion_bench.workloads.datasets.text import Tokenizer, build_vocabulary, encode, encode_splits
from accordion_bench.workloads.datasets.wikitext2 import WIKITEXT2_FILES, load, wikitext2

TRAIN = " = A Title = \n \n The cat's <unk> sat ; it didn't move . \n The end .\n"
EVALUATED = {"valid": "the dog sat .\n", "test": "a cat ended\n"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(published=False)


@cache
def plain_spacy() -> SpacyTokenizer:
    """spaCy itself, as the code published with the paper sets it up."""
    plain = spacy.blank("en").tokenizer
    plain.add_special_case("<unk>", [{ORTH: "<unk>"}])
    return plain


def spacy_tokens(line: str) -> list[str]:
    """spaCy's own answer for a whole line."""
    return [token.text.lower() for token in plain_spacy()(line)]


def own_texts(folder: Path, **texts: str | bytes) -> dict[str, str]:
    """Settings train_file, valid_file and test_file for texts written to a folder."""
    settings = {}
    for split, text in ({"train": TRAIN} | EVALUATED | texts).items():
        path = folder / f"{split}.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        settings[f"{split}_file"] = str(path)
    return settings


def config(root: Path, **values: object) -> DatasetConfig:
    return dataset_config("wikitext2", "text", root=str(root), **values)


def test_tokens_are_lower_case_split_as_english_with_an_end_on_every_line(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens(TRAIN) == [
        *["=", "a", "title", "=", "<eos>", "<eos>"],
        *["the", "cat", "'s", "<unk>", "sat", ";", "it", "did", "n't", "move", ".", "<eos>"],
        *["the", "end", ".", "<eos>"],
    ]


@pytest.mark.parametrize(
    "line", [" = A = ", " ", "", "two  blanks", "  two before", "and after  ", "a\ttab", "a\u2003b"]
)
def test_published_tokens_are_spacys_with_their_blanks(line: str) -> None:
    assert Tokenizer(published=True).tokens(line + "\n") == [*spacy_tokens(line), "<eos>"]


def test_word_by_word_is_line_by_line_on_real_text(tokenizer: Tokenizer) -> None:
    lines = shared("data", "wikitext-2", "wiki.valid.tokens").read_text(encoding="utf-8").split("\n")[:400]
    expected = [token for line in lines for token in [*spacy_tokens(line), "<eos>"]]
    text = "\n".join(lines) + "\n"
    assert tokenizer.tokens(text) == [token for token in expected if token.strip()]
    assert tokenizer.tokens(text).count("<unk>") == text.count("<unk>")
    assert Tokenizer(published=True).tokens(text) == expected


def test_the_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    assert build_vocabulary(["b", "a", "c", "a", "<eos>", "b", "a", "d"], "train") == (
        "<unk>",
        "<eos>",
        "a",
        "b",
        "c",
        "d",
    )


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_vocabulary_of_another_split_is_refused(split: str) -> None:
    with pytest.raises(UserError, match=f"must be built from the training split, got the {split} split"):
        build_vocabulary(["a"], split)


def test_unseen_tokens_become_unknown() -> None:
    assert encode(["a", "z", "<eos>"], ("<unk>", "<eos>", "a")).tolist() == [2, 0, 1]


def test_the_vocabulary_comes_from_the_training_text_alone(tmp_path: Path) -> None:
    data = wikitext2(config(tmp_path), **own_texts(tmp_path))  # type: ignore[arg-type]
    assert "dog" not in data.vocabulary
    assert "cat" in data.vocabulary
    assert [data.vocabulary[number] for number in data.valid] == ["the", "<unk>", "sat", ".", "<eos>"]
    assert np.bincount(data.train).argmax() == data.vocabulary.index("<eos>")


def test_a_cache_is_used_keyed_by_content_and_replaced_when_damaged(tmp_path: Path) -> None:
    first = encode_splits({"train": TRAIN, **EVALUATED}, False, tmp_path)
    (cache,) = tmp_path.iterdir()
    assert encode_splits({"train": TRAIN, **EVALUATED}, False, tmp_path).vocabulary == first.vocabulary

    two = np.zeros(2, np.int32)
    np.savez(cache, train=two, valid=two, test=two, vocabulary=np.frombuffer(b'["x"]', np.uint8))
    assert encode_splits({"train": TRAIN, **EVALUATED}, False, tmp_path).vocabulary == ("x",)  # it was read
    content = cache.read_bytes()
    for damaged in (content[:-30], b"\x80\x04K\x01."):
        cache.write_bytes(damaged)
        again = encode_splits({"train": TRAIN, **EVALUATED}, False, tmp_path)
        assert again.vocabulary == first.vocabulary
        assert (again.test == first.test).all()

    encode_splits({"train": TRAIN, **EVALUATED, "test": "other\n"}, False, tmp_path)
    published = encode_splits({"train": TRAIN, **EVALUATED}, True, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert published.vocabulary[:3] == ("<unk>", "<pad>", "<eos>")


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cannot cache tokens"):
        encode_splits({"train": TRAIN, **EVALUATED}, False, tmp_path / "file" / "cache")


BAD = {
    "": "train_file=.* is empty",
    " \n \n": "train_file=.* is empty",
    b"caf\xe9 au lait\n": "must be UTF-8 text, byte 3 is not",
    "fine\n" + "x" * 5000 + "\n": "words of at most 1000 characters, line 2 has one of 5000",
    EVALUATED["test"]: "training text is also the test text",
    EVALUATED["valid"]: "training text is also the valid text",
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_bad_texts_end_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        wikitext2(config(tmp_path), **own_texts(tmp_path, train=text))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_text_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.test_file must be a text file that can be read, got nowhere"):
        wikitext2(config(tmp_path), **(own_texts(tmp_path) | {"test_file": "nowhere"}))  # type: ignore[arg-type]


def test_official_texts_are_checked_and_own_ones_may_replace_some(tmp_path: Path) -> None:
    texts = {"train": TRAIN, **EVALUATED}
    files = replace(
        WIKITEXT2_FILES,
        digests={f"wiki.{split}.tokens": hashlib.sha1(text.encode()).hexdigest() for split, text in texts.items()},
        mirrors=(),
    )
    (tmp_path / "wikitext-2").mkdir()
    for split, text in texts.items():
        (tmp_path / "wikitext-2" / f"wiki.{split}.tokens").write_text(text)
    none = dict.fromkeys(texts, None)
    assert len(load(files, config(tmp_path), none, False).test) == 4

    own = tmp_path / "own.txt"
    own.write_text("one two three four five\n")
    assert len(load(files, config(tmp_path), none | {"test": str(own)}, False).test) == 6

    (tmp_path / "wikitext-2" / "wiki.valid.tokens").write_text("changed\n")
    with pytest.raises(UserError, match=r"wiki\.valid\.tokens is not the official file \(SHA1"):
        load(files, config(tmp_path), none, False)
    with pytest.warns(UserWarning, match="not the official files"):
        load(files, config(tmp_path, verify=False), none, False)


def test_the_checksums_are_those_of_the_real_texts() -> None:
    for name in ("wiki.valid.tokens", "wiki.test.tokens"):
        content = shared("data", "wikitext-2", name).read_bytes()
        assert hashlib.sha1(content).hexdigest() == WIKITEXT2_FILES.digests[name]


def test_limits_cut_tokens_and_keep_the_vocabulary(tmp_path: Path) -> None:
    data = wikitext2(config(tmp_path), **own_texts(tmp_path))  # type: ignore[arg-type]
    cut = data.limited(10, 3)
    assert (len(cut.train), len(cut.valid), len(cut.test)) == (10, 3, 3)
    assert cut.vocabulary == data.vocabulary
    with pytest.raises(UserError, match=r"dataset\.limit_train must be between 1 and 22 .* got 23"):
        data.limited(23, None)
    with pytest.raises(UserError, match=r"dataset\.limit_test must be between 1 and 4 \(tokens of the test split\)"):
        data.limited(None, 5)
