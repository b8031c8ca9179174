"""Samples of rows with several answers to one prompt: one group, the prompt once, each answer a branch of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from outlive.data.conversation import Chat, Group, Text
from outlive.data.sample import Sample
from outlive.run.errors import InputError
from outlive.text.refusal import Refusal

if TYPE_CHECKING:
    from outlive.data.samples import SampleMaker

PREFIX = "prefix"  # the role of a prompt that branches share
_ADVICE = {
    "preference": ("pairs of a better and a worse answer", "data.train.0.format=chosen learns the better answers only"),
    "ranking": ("ranked answers", "name one answer a row: prompt and completion"),
    "kto": (
        "answers with a label, good or bad",
        "data.train.0.format=prompt_completion learns all of them, good and bad; leave out the bad ones first",
    ),
    "prompt_answer": (
        "prompts with the right answer, for rewards",
        "to learn the answers themselves: data.train.0.format=prompt_completion and "
        "data.train.0.fields={completion: answer}",
    ),
    "stepwise": ("steps that are judged one by one", "name prompt and completion, one row for each solution"),
}


class OtherMethod(InputError):
    """The rows are for methods of another kind than the run's: a fault of the run, not of a row."""


def refuse_groups(group: Group) -> NoReturn:
    """Raise OtherMethod: the rows hold groups, and the method learns from single conversations."""
    what, fix = _ADVICE[group.kind]
    raise OtherMethod(f"the rows hold {what}, and the method learns from single conversations", fix=fix)


def group_samples(maker: SampleMaker, group: Group) -> list[Sample]:
    """The samples of one group, in the order prefix, branches. Their roles are those of the group's branches.

    Where the prompt's tokens begin every branch, they stand once: a sample of the role PREFIX without the prompt's
    last token, with which each branch begins. Else each branch holds the prompt too. Raises Refusal.
    """
    if not group.branches:
        return [_prompt_only(maker, group)]
    if group.chained:
        return _chain(maker, group)
    prompts: list[Sample] = []
    whole: list[Sample] = []
    for place, (role, _) in enumerate(group.branches):
        sample, num_prompt = _branch(maker, group.branch(place))
        whole.append(sample._replace(role=role, part=place))
        prompts.append(Sample(sample.tokens[:num_prompt], sample.weights[:num_prompt]))
    first = prompts[0].tokens
    if len(first) < 2 or any(not np.array_equal(first, prompt.tokens) for prompt in prompts):
        maker.counts["prefix_not_shared"] += len(first) >= 2
        return whole
    return [_prefix(first), *(_continued(sample, len(first), 0, sample.part + 1) for sample in whole)]


def _branch(maker: SampleMaker, conversation: Chat | Text) -> tuple[Sample, int]:
    """The whole sample of one branch, and how many of its tokens are the prompt's."""
    if isinstance(conversation, Text):
        sample = maker.text(conversation)
        return sample, int(np.flatnonzero(sample.weights)[0]) if sample.weights.any() else 0
    texts = maker.texts(conversation.with_system(maker.policy.system))
    if len(texts) > 1:
        raise Refusal("history_rewritten", "an answer of several turns, which the template writes otherwise one by one")
    (text,) = texts
    sample, differs = maker.joined_as_served(text)
    if differs and not all(maker.served(text.text[: span.start], sample) for span in text.spans):
        raise Refusal("not_separable", "a server would tokenise the prompt of one of the turns otherwise")
    return sample, int(np.flatnonzero(sample.weights)[0])


def _prefix(prompt: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Sample:
    return Sample(prompt[:-1].copy(), np.zeros(len(prompt) - 1, np.float32), 0, PREFIX)


def _continued(sample: Sample, num_before: int, prefix: int, part: int) -> Sample:
    tokens, weights = sample.tokens[num_before - 1 :].copy(), sample.weights[num_before - 1 :].copy()
    return Sample(tokens, weights, part, sample.role, prefix)


def _prompt_only(maker: SampleMaker, group: Group) -> Sample:
    if isinstance(group.prompt, str):
        sample = maker.text(Text("", group.prompt), ended=False)
        tokens = sample.tokens
    else:
        if maker.template is None:
            raise Refusal("no_template", "the tokenizer has no chat template; name one with data.chat_template")
        chat = Chat(group.prompt, group.tools).with_system(maker.policy.system)
        messages = maker.rendered(chat)
        text = maker.template.render(messages, tools=chat.tools, add_generation_prompt=True)
        tokens = np.array(maker.tokenizer.encode(text), dtype=np.int32)
    return Sample(tokens, np.zeros(len(tokens), np.float32), 0, "prompt")


def _chain(maker: SampleMaker, group: Group) -> list[Sample]:
    """Each step is the target of a sample of its own, after all before it; the last is followed by the end of text."""
    made = []
    for place, (role, _) in enumerate(group.branches):
        conversation = group.branch(place)
        assert isinstance(conversation, Text)
        is_last = place + 1 == len(group.branches)
        made.append(maker.text(conversation, ended=is_last)._replace(role=role, part=place))
    return made
