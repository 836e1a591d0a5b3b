"""The fingerprint: equal where ids mean the same, different where they do not."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from motet.errors import UsageError
from motet.models import Tokenizer, tiny_path
from motet.models.tokenizer import tokenizer_fingerprint

VOCAB = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "<end>": 5, "<pad>": 6}
MERGES = [("a", "b"), ("b", "c")]


def bpe(vocab=VOCAB, merges=MERGES, *, normalizer=None, pre_tokenizer=None, **special):
    backend = Backend(BPE(vocab=vocab, merges=merges))
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, **({"eos_token": "<end>"} | special))


def test_the_same_tokenizer_twice():
    assert tokenizer_fingerprint(bpe()) == tokenizer_fingerprint(bpe())


@pytest.mark.parametrize(
    "other",
    [
        lambda: bpe(vocab=VOCAB | {"d": 7}),
        lambda: bpe(vocab=VOCAB | {"a": 1, "b": 0}),
        lambda: bpe(merges=MERGES[:1]),
        lambda: bpe(merges=MERGES[::-1]),
        lambda: bpe(normalizer=Lowercase()),
        lambda: bpe(pre_tokenizer=Whitespace()),
        lambda: bpe(eos_token="c"),
        lambda: bpe(additional_special_tokens=["ab"]),
        lambda: PreTrainedTokenizerFast(
            tokenizer_object=Backend(WordLevel(vocab=VOCAB, unk_token="a")), eos_token="<end>"
        ),
    ],
    ids=["more-words", "other-ids", "fewer-merges", "order-of-merges", "normalizer", "pre-tokenizer", "end", "special",
         "other-kind"],
)  # fmt: skip
def test_whatever_decides_the_ids_decides_the_fingerprint(other):
    assert tokenizer_fingerprint(other()) != tokenizer_fingerprint(bpe())


def test_padding_and_length_settings_play_no_part():
    inner = bpe(pad_token="<pad>")
    before = tokenizer_fingerprint(inner)
    inner.padding_side = "left"
    inner.model_max_length = 17
    inner.name_or_path = "somebody/else"
    inner(["abc", "a"], padding=True, truncation=True, max_length=2)
    assert inner.backend_tokenizer.to_str() != bpe(pad_token="<pad>").backend_tokenizer.to_str()
    assert tokenizer_fingerprint(inner) == before


def test_a_copy_on_disk_has_the_same_fingerprint(tmp_path):
    inner = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))
    Tokenizer(inner, end_token_ids=[1], vocab_size=16).save(str(tmp_path))
    config = tmp_path / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps(settings | {"padding_side": "left", "model_max_length": 5}))
    assert tokenizer_fingerprint(AutoTokenizer.from_pretrained(tmp_path)) == tokenizer_fingerprint(inner)


def test_a_tokenizer_without_a_fast_backend():
    class Slow:
        def __init__(self, vocab):
            self._vocab = vocab
            self.special_tokens_map = {"eos_token": "x"}

        def get_vocab(self):
            return self._vocab

    assert tokenizer_fingerprint(Slow({"x": 0})) == tokenizer_fingerprint(Slow({"x": 0}))
    assert tokenizer_fingerprint(Slow({"x": 0})) != tokenizer_fingerprint(Slow({"x": 1}))


def test_text_to_ids_and_back():
    inner = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))
    tokenizer = Tokenizer(inner, end_token_ids=[1, 1], vocab_size=16)
    ids = tokenizer.encode_prompt("08.17;")
    assert tokenizer.end_token_ids == (1,)
    assert ids[-1] == 1
    assert tokenizer.decode_completion(ids).removesuffix(";") == "08.17"


def test_a_prompt_that_the_vocabulary_cannot_write():
    tokenizer = Tokenizer(
        AutoTokenizer.from_pretrained(tiny_path("tiny:small")), end_token_ids=[0], vocab_size=16, name="tiny:small"
    )
    assert tokenizer.encode_prompt("1+2=")
    with pytest.raises(
        UsageError, match=r"tiny:small: its vocabulary cannot write the prompt 'What is one and one"
    ) as caught:
        tokenizer.encode_prompt("What is one and one? " * 9)
    assert caught.value.code == "E-MODEL-19"
    assert len(str(caught.value)) < 250
