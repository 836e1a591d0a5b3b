"""From a prompt to the text that a model was trained to see: a chat template, or the text as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from motet.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Turn = tuple[str, str]

_MAX_REASON = 160
_OURS = frozenset({
    "conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message", "chat_template",
    "return_dict", "return_tensors", "return_assistant_tokens_mask", "padding", "truncation", "max_length",
})  # fmt: skip
_QUESTION, _RULE, _ANSWER = "Is the sky blue?", "Reply in one word.", "Certainly"


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """How a prompt becomes token ids.

    Attributes:
        format: "chat": by the chat template. "raw": the text alone. "auto": chat if there is a template.
        system: a system message; it replaces the prompt's own.
        template: Jinja text to use instead of the tokenizer's template.
        template_arguments: further variables of the template, such as {"enable_thinking": False}.
    """

    format: Literal["auto", "chat", "raw"] = "auto"
    system: str | None = None
    template: str | None = None
    template_arguments: Mapping[str, object] = field(default_factory=dict)


DEFAULT_STYLE = PromptStyle()


class Renderer:
    """Renders prompts of one tokenizer in one style.

    A template that refuses a system message, or leaves it out, gets the system text at the head of the first user
    message, with a blank line between.

    Args:
        name: the model's name, for messages.
        inner: the tokenizer; its template is used unless the style brings one.
        style: see `PromptStyle`.

    Attributes:
        is_chat: True if a template is used.

    Raises:
        UsageError: E-MODEL-12 if a chat is asked for and there is no template, or it does not work.
    """

    def __init__(self, name: str, inner: PreTrainedTokenizerBase, style: PromptStyle) -> None:
        self._name = name
        self._inner: Any = inner  # the stubs of transformers are narrower than what templates take
        self._style = style
        has_template = style.template is not None or bool(getattr(inner, "chat_template", None))
        self.is_chat = style.format == "chat" or (style.format == "auto" and has_template)
        self._folds_system = False
        if not self.is_chat:
            return
        if not has_template:
            raise UsageError(
                f'node.model {name!r}: prompt.format is "chat", but its tokenizer has no chat template; '
                'use "raw", or name a Jinja file in prompt.template',
                code="E-MODEL-12",
            )
        taken = sorted(_OURS & set(style.template_arguments))
        if taken:
            raise UsageError(
                f"prompt.template_arguments: {taken[0]!r} is set by motet; leave it out", code="E-MODEL-12"
            )
        self._check_template()

    def render(self, text: str, messages: Sequence[Turn] = ()) -> str:
        """The prompt as one text.

        Args:
            text: the prompt where there is no chat.
            messages: (role, content) of a chat. Empty: `text` as one user message. A last message of the assistant's
                is a beginning that the completion continues.
        """
        if not self.is_chat:
            return self._raw(text, messages)
        turns = _with_system(self._style.system, messages or [("user", text)])
        if self._folds_system:
            turns = _folded(turns)
        return self._template(turns)

    def turn_end(self) -> str:
        """What the template puts behind an assistant's message; empty without a template or if it shows none."""
        if not self.is_chat:
            return ""
        try:
            shown = self._apply([("user", _QUESTION), ("assistant", _ANSWER)], add_generation_prompt=False)
        except UsageError:  # a template for prompts alone
            return ""
        return shown.rpartition(_ANSWER)[2] if _ANSWER in shown else ""

    def _raw(self, text: str, messages: Sequence[Turn]) -> str:
        system = self._style.system
        if text:
            return text if system is None else f"{system}\n\n{text}"
        return "\n\n".join(content for _, content in _with_system(system, messages))

    def _template(self, turns: Sequence[Turn]) -> str:
        if turns[-1][0] == "assistant":
            return self._apply(turns, continue_final_message=True)
        return self._apply(turns, add_generation_prompt=True)

    def _apply(self, turns: Sequence[Turn], **how: bool) -> str:
        from jinja2 import TemplateError

        template = {} if self._style.template is None else {"chat_template": self._style.template}
        conversation = [{"role": role, "content": content} for role, content in turns]
        try:
            rendered: str = self._inner.apply_chat_template(
                conversation, tokenize=False, **how, **template, **self._style.template_arguments
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
            raise UsageError(
                f"node.model {self._name!r}: its chat template fails ({why}); mend it, give another in "
                'prompt.template, or use prompt.format = "raw"',
                code="E-MODEL-12",
            ) from error
        return rendered

    def _check_template(self) -> None:
        if _QUESTION not in self._template([("user", _QUESTION)]):
            raise UsageError(
                f"node.model {self._name!r}: its chat template leaves out the user's message; give another in "
                'prompt.template, or use prompt.format = "raw"',
                code="E-MODEL-12",
            )
        try:
            self._folds_system = _RULE not in self._template([("system", _RULE), ("user", _QUESTION)])
        except UsageError:
            self._folds_system = True


def _with_system(system: str | None, messages: Sequence[Turn]) -> list[Turn]:
    if system is None:
        return list(messages)
    return [("system", system), *(turn for turn in messages if turn[0] != "system")]


def _folded(turns: Sequence[Turn]) -> list[Turn]:
    rules = [content for role, content in turns if role == "system"]
    others = [turn for turn in turns if turn[0] != "system"]
    for place, (role, content) in enumerate(others):
        if rules and role == "user":
            others[place] = (role, "\n\n".join([*rules, content]))
            return others
    return others if not rules else [("user", "\n\n".join(rules)), *others]
