"""Prompts as a model was trained to see them: templates of several styles, system messages, raw text, digests."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from motet.errors import UsageError
from motet.models import PromptStyle, Tokenizer

QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
DEAF = "{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}"
SPECIAL = ["<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|eot|>", "<end>", "<turn>"]


def tokenizer(template=None, *, style=None, pad="<pad>", ends=(1,)):
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, "<pad>", "<unk>", *map(chr, range(10, 127))])}
    backend = Backend(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Split("", "isolated")
    backend.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    inner = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", pad_token=pad, unk_token="<unk>",
        additional_special_tokens=SPECIAL[2:], chat_template=template,
    )  # fmt: skip
    return Tokenizer(inner, end_token_ids=ends, vocab_size=len(vocabulary), style=style or PromptStyle(), name="m")


def refused(*args, **kwargs):
    with pytest.raises(UsageError) as caught:
        tokenizer(*args, **kwargs)
    assert caught.value.code == "E-MODEL-12"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_auto_is_raw_without_a_template_and_chat_with_one():
    plain, chat = tokenizer(), tokenizer(QWEN)
    assert not plain.uses_template
    assert plain.render_prompt("2+2?") == "2+2?"
    assert chat.uses_template
    assert chat.render_prompt("2+2?") == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"


def test_raw_text_gets_the_tokenizers_own_beginning():
    assert tokenizer().encode_prompt("a")[0] == 0
    assert tokenizer(QWEN, style=PromptStyle("raw")).render_prompt("a") == "a"


@pytest.mark.parametrize("template", [LLAMA, GEMMA])
def test_one_beginning_where_the_template_writes_it(template):
    ids = tokenizer(template).encode_prompt("hello")
    assert ids[0] == 0
    assert ids.count(0) == 1


def test_no_beginning_where_the_template_writes_none():
    assert 0 not in tokenizer(QWEN).encode_prompt("hello")


def test_messages_pass_through_the_template():
    rendered = tokenizer(LLAMA).render_prompt(
        "ignored", [("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V")]
    )
    assert rendered == "<bos><|system|>S<|eot|><|user|>U<|eot|><|assistant|>A<|eot|><|user|>V<|eot|><|assistant|>"


def test_a_begun_answer_is_continued():
    rendered = tokenizer(QWEN).render_prompt("", [("user", "U"), ("assistant", "The answer is")])
    assert rendered.endswith("<|im_start|>assistant\nThe answer is")


def test_a_system_message_is_put_in_or_replaces_the_prompts_own():
    chat = tokenizer(LLAMA, style=PromptStyle(system="Be brief."))
    assert chat.render_prompt("U").startswith("<bos><|system|>Be brief.<|eot|><|user|>U")
    assert "Own" not in chat.render_prompt("", [("system", "Own"), ("user", "U")])


@pytest.mark.parametrize("template", [GEMMA, DEAF], ids=["raises", "leaves-out"])
def test_a_system_message_joins_the_first_user_message_where_the_template_has_no_place_for_it(template):
    chat = tokenizer(template, style=PromptStyle(system="Be brief."))
    assert "Be brief.\n\nU" in chat.render_prompt("U")
    assert "Own\n\nU" in tokenizer(template).render_prompt("", [("system", "Own"), ("user", "U")])


def test_raw_joins_messages_with_blank_lines_and_puts_the_system_text_first():
    messages = [("system", "S"), ("user", "U")]
    assert tokenizer().render_prompt("", messages) == "S\n\nU"
    assert tokenizer().render_prompt("text", messages) == "text"
    styled = tokenizer(style=PromptStyle(system="T"))
    assert styled.render_prompt("text", messages) == "T\n\ntext"
    assert styled.render_prompt("", messages) == "T\n\nU"


def test_thinking_flags_reach_the_template():
    on, off = (tokenizer(QWEN, style=PromptStyle(template_arguments=a)) for a in ({}, {"enable_thinking": False}))
    assert "<think>" not in on.render_prompt("U")
    assert off.render_prompt("U") == on.render_prompt("U") + "<think>\n\n</think>\n\n"


def test_a_template_of_the_run_file_goes_before_the_tokenizers():
    assert tokenizer(QWEN, style=PromptStyle(template=LLAMA)).render_prompt("U").startswith("<bos><|user|>U")
    assert tokenizer(style=PromptStyle(template=LLAMA)).uses_template


@pytest.mark.parametrize(
    ("template", "end"), [(QWEN, "<|im_end|>"), (LLAMA, "<|eot|>"), (GEMMA, "<end>"), (DEAF, None)]
)
def test_what_closes_a_turn_ends_a_completion(template, end):
    added = [] if end is None else [SPECIAL.index(end)]
    assert tokenizer(template).end_token_ids == tuple(sorted([1, *added]))
    assert tokenizer(template, style=PromptStyle("raw")).end_token_ids == (1,)


def test_a_pad_token_that_is_the_end_token_changes_nothing():
    usual, shared = tokenizer(QWEN), tokenizer(QWEN, pad="<eos>")
    assert shared.end_token_ids == usual.end_token_ids
    assert shared.encode_prompt("hello") == usual.encode_prompt("hello")
    ids = usual.encode_prompt("hello")
    assert shared.decode_completion([*ids, 1]) == usual.decode_completion([*ids, 1])


def test_chat_without_a_template_is_refused():
    assert "no chat template" in refused(style=PromptStyle("chat"))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}", "fails"),
        ("{{ messages[0].content.no_such() }}", "fails"),
        ("{{ raise_exception('no') }}", "no"),
        ("Hello, who are you?", "leaves out"),
    ],
)
def test_a_broken_template_is_one_line(template, why):
    message = refused(template)
    assert why in message
    assert "prompt.template" in message


def test_arguments_that_are_motets_own_are_refused():
    assert "'tokenize'" in refused(QWEN, style=PromptStyle(template_arguments={"tokenize": True}))


def test_the_digest_tells_prompts_apart():
    prompts = [("a", ()), ("b", (("system", "S"), ("user", "U")))]
    digest = tokenizer(QWEN).prompts_digest(prompts)
    assert digest == tokenizer(QWEN).prompts_digest(iter(prompts))
    others = [
        tokenizer(QWEN).prompts_digest(prompts[::-1]),
        tokenizer(QWEN).prompts_digest(prompts[:1]),
        tokenizer(LLAMA).prompts_digest(prompts),
        tokenizer(QWEN, style=PromptStyle(system="T")).prompts_digest(prompts),
        tokenizer(QWEN, style=PromptStyle(template_arguments={"enable_thinking": False})).prompts_digest(prompts),
    ]
    assert len({digest, *others}) == 6
    plain = tokenizer()
    assert plain.prompts_digest([("ab", ()), ("", ())]) != plain.prompts_digest([("a", ()), ("b", ())])
