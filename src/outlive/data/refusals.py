"""Why a row is refused before any template is asked: a fixed list, the same here and in docs/refusals.md."""

from __future__ import annotations

from outlive.text.refusal import REASONS

DATA_REASONS = {
    "bad_utf8": "The line is no UTF-8.",
    "line_too_long": "The line has more bytes than any row: the file has no line breaks, or is no JSON Lines.",
    "bad_json": "The line is no JSON, has a key twice in one object, too large a number, or is nested too deep.",
    "not_an_object": "The line holds JSON, but no object.",
    "bad_table_row": "A row of a CSV file has another number of fields than the header.",
    "unknown_format": "The row has the shape of no known format.",
    "wrong_format": "The row has another shape than the file's format.",
    "ambiguous_format": "The row has the shape of several formats, and none is named.",
    "missing_field": "The row lacks a column that data.train[].fields names.",
    "no_messages": "The list of messages is empty.",
    "bad_message": "A message is no object.",
    "unknown_role": "A message has a role that is not known and that data.train[].roles does not map.",
    "content_not_text": "A message's content, or another text of the row, is missing or no text.",
    "images": "The row holds images, video or audio, which are not learned from yet; they are never trained as text.",
    "bad_tool_calls": "A tool call has no name, or arguments that are neither an object nor text, or its turn is not "
    "the assistant's.",
    "two_reasonings": "A message has several reasoning fields, which differ.",
    "bad_weight": "A weight is neither 0 nor a number from 1e-6 to 1e6, a message has two, they do not fit its "
    "text, or loss_on is all.",
    "characters_not_found": "Characters of a message have weights of their own, and their place in the rendered text, "
    "or in its tokens, is not known.",
    "bad_tools": "The tools are no list of JSON schemas.",
    "template_arguments": "The row brings arguments of its own for the chat template, which are not supported.",
    "empty_text": "The text or the completion is empty.",
    "bad_pair": "The two answers share no prompt, are of two kinds, or one of them has no assistant turn.",
    "identical_pair": "Both answers of a pair are the same.",
    "bad_label": "A label is neither true nor false, or there is none for each answer.",
    "no_answer": "The right answer, which a reward needs, is empty.",
    "no_tokens": "The row was tokenised, and holds no token.",
    "bad_tokens": "Token ids, labels or masks do not fit each other or the vocabulary; labels are "
    "unshifted, -100 where no target is.",
    "bad_column": "A column that the method reads is missing, no number, or a number that no float32 holds.",
    "no_template": "The row is a chat, and there is no chat template.",
    "no_completion": "loss_on is completion, and the row is no prompt with a completion.",
    "no_target": "No token of the row would carry loss.",
    "bad_text": "The text can't be tokenised, such as half of a surrogate pair.",
    "not_separable": "The tokenizer joins the prompt's last token with the answer's first.",
    "overlong": "The row has more tokens than data.sequence_length, and data.overlong is drop.",
    "no_target_left": "After the cut to data.sequence_length no token carries loss.",
}

# Rows of these reasons are too long, not wrong: data.overlong decides about them, not data.bad_rows.
LENGTH_REASONS = frozenset({"overlong", "no_target_left"})
# What helps, where it is more than mending the row; the same for the reasons of outlive.text.
REMEDIES = {
    "no_template": "name a template file with data.chat_template, or take a model that has one (most whose name ends "
    "in Instruct or Chat)",
    "overlong": "raise data.sequence_length, or set data.overlong=truncate or data.overlong=split",
    "no_target_left": "raise data.sequence_length, or set data.overlong=drop",
    "ambiguous_format": "name one of the formats: data.train.0.format=NAME",
    "unknown_format": "name the columns: data.train.0.fields={messages: COLUMN}; docs/formats.md shows each shape",
    "bad_tokens": "make the rows again with this model's own tokenizer, or name the text of the rows instead",
    "no_completion": "set data.loss_on=assistant, or give rows with prompt and completion",
    "line_too_long": "put each row on a line of its own: jq -c . FILE > new.jsonl",
    "bad_utf8": "convert the file to UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE > new.jsonl",
    "history_rewritten": "another template (data.chat_template) that keeps earlier turns as they are",
    "no_end_of_turn": "another template (data.chat_template), or data.turn_end=content",
    "assistant_first": "begin each conversation with a user turn, or set data.system",
}


def meaning(reason: str) -> str:
    """One sentence on a reason, of reading or of rendering, as docs/refusals.md has it; "" for a name of no reason."""
    return DATA_REASONS.get(reason) or REASONS.get(reason, "")
