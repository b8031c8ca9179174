"""Why a conversation gives no spans: a fixed list of reasons, the same in code and in docs/refusals.md."""

from __future__ import annotations

from outlive.run.errors import InputError

MAX_DETAIL = 400
REASONS = {
    "no_assistant_turn": "The conversation has no assistant turn, so there is nothing to learn from it.",
    "template_error": "The chat template can't render the conversation, or the prompt of one of its turns.",
    "assistant_first": "The conversation begins with an assistant turn, and the template gives no prompt before it.",
    "history_rewritten": "The template writes a turn otherwise than the prompt before it, or otherwise once later "
    "turns follow, and where the answer begins after the prompt that a server renders is not known, not even one "
    "turn at a time.",
    "generation_prompt_not_prefix": "The generation prompt that a server renders is not how the turn begins in the "
    "text: it opens a part, such as <think>, that the text does not have.",
    "no_generation_prompt": "The template ignores add_generation_prompt and writes a header of its own before the "
    "turn, so a server would leave that header to the model.",
    "content_not_rendered": "The template loses, cuts or alters a part of the turn: its text, its reasoning, or a "
    "tool call's name or arguments.",
    "not_traced": "The template does something with texts through which their origin can't be followed.",
    "arguments_escaped": "A tool call's arguments are JSON text that the template encodes once more, as a string; give "
    "them as an object.",
    "python_notation": "The template prints a list or an object in Python's notation, as {'a': 1}: it was not written "
    "for this form of message.",
    "other_message_inside": "Text of another message, which the prompt lacks, would be a target of this turn.",
    "end_of_turn_inside": "An end of turn stands before the turn's last word: a server would stop there.",
    "no_end_of_turn": "No end of turn follows the turn, so a model that learns from it would not learn to stop.",
}


class Refusal(InputError):
    """A row or a conversation that can't be used. `reason`: a name from a fixed list; `detail`: where and what.

    A detail quotes what was found, which may be a whole book: past MAX_DETAIL characters it is cut, with a "…".
    `path`: keys and indices of the value in the row that is meant, where it is one.
    """

    def __init__(self, reason: str, detail: str = "", path: tuple[str | int, ...] = ()) -> None:
        detail = detail if len(detail) <= MAX_DETAIL else detail[: MAX_DETAIL - 1] + "…"
        self.reason, self.detail, self.path = reason, detail, path
        super().__init__(f"{reason}: {detail}" if detail else reason)

    def __reduce__(self) -> tuple[type[Refusal], tuple[str, str, tuple[str | int, ...]]]:
        return type(self), (self.reason, self.detail, self.path)
