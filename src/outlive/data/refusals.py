"""Why a row is refused before any template is asked: a fixed list, the same here and in docs/refusals.md."""

from __future__ import annotations

DATA_REASONS = {
    "bad_utf8": "The line is no UTF-8.",
    "bad_json": "The line is no JSON, has a key twice in one object, too large a number, or is nested too deep.",
    "not_an_object": "The line holds JSON, but no object.",
    "unknown_format": "The row has the shape of no known format.",
    "wrong_format": "The row has another shape than the file's format.",
    "no_messages": "The list of messages is empty.",
    "bad_message": "A message is no object.",
    "unknown_role": "A message has a role other than system, developer, user, assistant and tool.",
    "content_not_text": "A message's content is no text: it is missing, or a list of parts such as images.",
    "bad_weight": "A message's weight is neither 0 nor a number from 1e-6 to 1e6, it has both weight and train, or "
    "loss_on is all.",
    "bad_tools": "The tools are no list of JSON schemas.",
    "template_arguments": "The row brings arguments of its own for the chat template, which are not supported.",
    "empty_text": "The text or the completion is empty.",
    "bad_column": "A column that the method reads is missing, no number, or a number that no float32 holds.",
    "no_template": "The row is a chat, and there is no chat template.",
    "no_completion": "loss_on is completion, and the row is no prompt with a completion.",
    "no_target": "No token of the row would carry loss.",
    "bad_text": "The text can't be tokenised, such as half of a surrogate pair.",
    "not_separable": "The tokenizer joins the prompt's last token with the answer's first.",
    "overlong": "The row has more tokens than data.sequence_length, and data.overlong is drop.",
    "no_target_left": "After the cut to data.sequence_length no token carries loss.",
}
