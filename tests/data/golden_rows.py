"""One row of each shape that is read, with what it becomes: the table of docs/formats.md, and the tests' golden rows.

Each shape: the format's name, the row, and the conversation as plain data.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Golden(NamedTuple):
    """`becomes`: messages, or what stands for them in a conversation of another kind (see `test_formats.plainly`)."""

    format: str
    about: str
    row: dict[str, Any]
    becomes: Any


def said(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """Messages of user and assistant in turns."""
    turns = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *turns] if system is not None else turns


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "type": "function", "function": {"name": "now", "arguments": arguments}}


QA = said("hi", "yes")
CALLED = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": [call({"zone": "UTC"})]},
    {"role": "tool", "content": "12:00"},
    {"role": "assistant", "content": "yes"},
]
CHOSEN, REJECTED = {"role": "assistant", "content": "yes"}, {"role": "assistant", "content": "no"}
PAIR = {"prompt": QA[:1], "chosen": [CHOSEN], "rejected": [REJECTED]}
TEXT_PAIR = {"prompt": "It is", "chosen": " blue", "rejected": " black"}


GOLDEN = [
    Golden("messages", "OpenAI", {"messages": QA}, QA),
    Golden(
        "messages",
        "OpenAI: a tool's call and result, arguments as text, content null",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [call('{"zone": "UTC"}', id="a1")]},
                {"role": "tool", "tool_call_id": "a1", "content": "12:00"},
                {"role": "assistant", "content": "yes"},
            ]
        },
        [
            CALLED[0],
            {"role": "assistant", "content": "", "tool_calls": [call('{"zone": "UTC"}', id="a1")]},
            {"role": "tool", "tool_call_id": "a1", "content": "12:00"},
            CALLED[3],
        ],
    ),
    Golden(
        "messages",
        "OpenAI: the older function_call and the role function, no content",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "function_call": {"name": "now", "arguments": {"zone": "UTC"}}},
                {"role": "function", "name": "now", "content": "12:00"},
                {"role": "assistant", "content": "yes"},
            ]
        },
        [CALLED[0], CALLED[1], {**CALLED[2], "name": "now"}, CALLED[3]],
    ),
    Golden(
        "messages",
        "the role developer",
        {"messages": [{"role": "developer", "content": "short"}, *QA]},
        [{"role": "developer", "content": "short"}, *QA],
    ),
    Golden(
        "messages",
        "content as parts",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, CHOSEN]},
        QA,
    ),
    Golden(
        "messages",
        "several text parts, joined as the template joins them",
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
                CHOSEN,
            ]
        },
        [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}, CHOSEN],
    ),
    Golden(
        "messages",
        "reasoning: reasoning_content, thinking or reasoning",
        {"messages": [QA[0], {**CHOSEN, "thinking": "hm"}]},
        [QA[0], {**CHOSEN, "reasoning_content": "hm"}],
    ),
    Golden(
        "messages",
        "reasoning as a part",
        {
            "messages": [
                QA[0],
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}],
                },
            ]
        },
        [QA[0], {**CHOSEN, "reasoning_content": "hm"}],
    ),
    Golden(
        "messages",
        "Anthropic: tool_use and tool_result",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "name": "now", "input": {"zone": "UTC"}}]},
                {"role": "user", "content": [{"type": "tool_result", "content": "12:00"}]},
                {"role": "assistant", "content": "yes"},
            ]
        },
        CALLED,
    ),
    Golden(
        "messages",
        "the list as JSON text, roles human and gpt",
        {"messages": '[{"role": "human", "content": "hi"}, {"role": "gpt", "content": "yes"}]'},
        QA,
    ),
    Golden("messages", "a system column", {"system": "short", "messages": QA}, said("hi", "yes", system="short")),
    Golden(
        "sharegpt",
        "ShareGPT",
        {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]},
        QA,
    ),
    Golden(
        "sharegpt",
        "ShareGPT with calls",
        {
            "conversations": [
                {"from": "human", "value": "hi"},
                {"from": "function_call", "value": '{"name": "now", "arguments": {"zone": "UTC"}}'},
                {"from": "observation", "value": "12:00"},
                {"from": "gpt", "value": "yes"},
            ]
        },
        [CALLED[0], {**CALLED[1], "content": ""}, CALLED[2], CALLED[3]],
    ),
    Golden(
        "sharegpt",
        "the same list with role and content (pygmalion: role and value)",
        {"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "value": "yes"}]},
        QA,
    ),
    Golden(
        "sharegpt",
        "a first turn of the assistant stays: a template that can't show it refuses the row",
        {
            "conversations": [
                {"from": "gpt", "value": "yes"},
                *[{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}],
            ]
        },
        [CHOSEN, *QA],
    ),
    Golden("conversation_pairs", "ms-swift", {"conversation": [{"human": "hi", "assistant": "yes"}]}, QA),
    Golden("prompt_completion", "text", {"prompt": "It is", "completion": " blue"}, ["It is", " blue"]),
    Golden("prompt_completion", "messages", {"prompt": QA[:1], "completion": QA[1:]}, QA),
    Golden("text", "plain text", {"text": "It is blue"}, ["", "It is blue"]),
    Golden(
        "input_output",
        "Axolotl's segments",
        {"segments": [{"text": "<s>hi ", "label": False}, {"text": "yes</s>", "label": True}]},
        [("<s>hi ", 0.0), ("yes</s>", 1.0)],
    ),
    Golden("alpaca", "Alpaca", {"instruction": "hi", "input": "", "output": "yes"}, QA),
    Golden(
        "alpaca",
        "Alpaca with input, system and history",
        {"instruction": "add", "input": "1 2", "output": "3", "system": "short", "history": [["hi", "yes"]]},
        said("hi", "yes", "add\n1 2", "3", system="short"),
    ),
    Golden("gpteacher", "", {"instruction": "hi", "response": "yes"}, QA),
    Golden("dolly", "", {"instruction": "who", "context": "Ann", "response": "yes"}, said("who\nAnn", "yes")),
    Golden(
        "reflection",
        "",
        {"instruction": "hi", "output": "no", "reflection": "wrong", "corrected": "yes"},
        said("hi", "no\n\nwrong\n\nyes"),
    ),
    Golden("oasst", "", {"INSTRUCTION": "hi", "RESPONSE": "yes"}, QA),
    Golden("question_answer", "", {"question": "hi", "answer": "yes"}, QA),
    Golden("jeopardy", "", {"category": "greetings", "question": "hi", "answer": "yes"}, said("hi\ngreetings", "yes")),
    Golden("context_qa", "", {"context": "Ann", "question": "who", "answer": "yes"}, said("Ann\n\nwho", "yes")),
    Golden("article_qa", "", {"article": "Ann", "question": "who", "answer": "yes"}, said("Ann\n\nwho", "yes")),
    Golden(
        "multiple_choice",
        "",
        {"question": "who", "choices": ["a", "b"], "solution": "yes"},
        said("who\n- a\n- b", "yes"),
    ),
    Golden(
        "explained_choice",
        "",
        {"question": "who", "choices": ["a", "b"], "explanation": "yes"},
        said("who\n- a\n- b", "yes"),
    ),
    Golden("summarize_tldr", "", {"article": "hi", "summary": "yes"}, QA),
    Golden(
        "open_orca",
        "",
        {"system_prompt": "short", "question": "hi", "response": "yes"},
        said("hi", "yes", system="short"),
    ),
    Golden("camel_ai", "", {"message_1": "hi", "message_2": "yes"}, QA),
    Golden("metharme", "", {"prompt": "hi", "generation": "yes"}, QA),
    Golden("prompt_response", "", {"prompt": "hi", "response": "yes"}, QA),
    Golden("query_response", "ms-swift", {"query": "hi", "response": "yes"}, QA),
    Golden("revision", "", {"instruction": "hi", "revision": "yes"}, QA),
    Golden(
        "tokens",
        "TRL, Axolotl, LLaMA-Factory: made with this tokenizer",
        {"input_ids": [5, 6, 7, 0], "labels": [-100, 6, 7, -100], "attention_mask": [1, 1, 1, 0]},
        [((5, 6, 7), (0.0, 1.0, 1.0))],
    ),
    Golden(
        "tokens",
        "LLaMA-Factory: the cache of a pack, documents numbered by the mask",
        {
            "input_ids": [5, 6, 7, 8, 0],
            "labels": [-100, 6, -100, 8, -100],
            "attention_mask": [1, 1, 2, 2, 0],
            "images": None,
        },
        [((5, 6), (0.0, 1.0)), ((7, 8), (0.0, 1.0))],
    ),
    Golden(
        "tokens", "TRL with completion_mask", {"input_ids": [5, 6], "completion_mask": [0, 1]}, [((5, 6), (0.0, 1.0))]
    ),
    Golden(
        "tokens",
        "a pack, cut at its documents",
        {"input_ids": [5, 6, 7, 8], "labels": [-100, 6, -100, 8], "seq_lengths": [2, 2]},
        [((5, 6), (0.0, 1.0)), ((7, 8), (0.0, 1.0))],
    ),
    Golden("preference", "prompt as messages", {"prompt": QA[:1], "chosen": [CHOSEN], "rejected": [REJECTED]}, PAIR),
    Golden(
        "preference",
        "whole conversations: the prompt is what they share",
        {"chosen": [*QA[:1], CHOSEN], "rejected": [*QA[:1], REJECTED]},
        PAIR,
    ),
    Golden(
        "preference",
        "UltraFeedback: a prompt and whole conversations",
        {"prompt": "hi", "chosen": [*QA[:1], CHOSEN], "rejected": [*QA[:1], REJECTED], "score_chosen": 8.0},
        PAIR,
    ),
    Golden("preference", "plain text", {"prompt": "It is", "chosen": " blue", "rejected": " black"}, TEXT_PAIR),
    Golden(
        "preference",
        "plain text without a prompt: cut between words",
        {"chosen": "It is blue", "rejected": "It is black"},
        TEXT_PAIR,
    ),
    Golden(
        "preference",
        "HH-RLHF",
        {"chosen": "\n\nHuman: hi\n\nAssistant: yes", "rejected": "\n\nHuman: hi\n\nAssistant: no"},
        PAIR,
    ),
    Golden(
        "preference",
        "LLaMA-Factory, ShareGPT",
        {
            "conversations": [{"from": "human", "value": "hi"}],
            "chosen": {"from": "gpt", "value": "yes"},
            "rejected": {"from": "gpt", "value": "no"},
        },
        PAIR,
    ),
    Golden(
        "preference",
        "LLaMA-Factory, Alpaca",
        {"instruction": "hi", "input": "", "chosen": "yes", "rejected": "no"},
        PAIR,
    ),
    Golden("preference", "Axolotl (intel)", {"question": "hi", "chosen": "yes", "rejected": "no"}, PAIR),
    Golden("preference", "ms-swift", {"messages": QA, "rejected_response": "no"}, PAIR),
    Golden(
        "preference", "other names", {"instruction": "hi", "chosen_response": "yes", "rejected_response": "no"}, PAIR
    ),
    Golden(
        "chosen",
        "the better answers alone, by name",
        {"prompt": QA[:1], "chosen": [CHOSEN], "rejected": [REJECTED]},
        QA,
    ),
    Golden(
        "ranking",
        "ranked answers",
        {"prompt": "hi", "responses": ["no", "yes"], "scores": [0.1, 0.9]},
        {"prompt": "hi", "rank_1": "yes", "rank_2": "no"},
    ),
    Golden(
        "ranking",
        "Nectar",
        {"prompt": "hi", "answers": [{"answer": "yes", "rank": 1}, {"answer": "no", "rank": 2}]},
        {"prompt": "hi", "rank_1": "yes", "rank_2": "no"},
    ),
    Golden("kto", "", {"prompt": "hi", "completion": "yes", "label": True}, {"prompt": "hi", "desirable": "yes"}),
    Golden(
        "kto",
        "label as 0, 1 or text",
        {"prompt": QA[:1], "completion": [REJECTED], "label": "False"},
        {"prompt": QA[:1], "undesirable": [REJECTED]},
    ),
    Golden("prompt_answer", "for rewards", {"prompt": QA[:1], "answer": "yes"}, {"prompt": QA[:1], "answer": "yes"}),
    Golden(
        "prompt_answer",
        "verl",
        {"data_source": "x", "prompt": QA[:1], "reward_model": {"style": "rule", "ground_truth": "yes"}},
        {"prompt": QA[:1], "answer": "yes"},
    ),
    Golden(
        "stepwise",
        "",
        {"prompt": "1+1", "completions": ["is 2", "is 3"], "labels": [True, False]},
        {"prompt": "1+1", "good_step": "is 2", "bad_step": "\nis 3"},
    ),
]
