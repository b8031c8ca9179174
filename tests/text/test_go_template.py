"""Promise: a chat template that is translated to Go's syntax gives the same text, and is not translated otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.text.go_template import GoTemplate, go_template, talk
from outlive.text.template import ChatTemplate
from tests.fixtures import CHATML, cases
from tests.text.go_subset import ollama

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
KNOWN = ("<s>", "</s>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rule = messages[0].content + '\n\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set rule = '' %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ rule if loop.first }}{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rule = messages[0].content %}"
    "{% set turns = messages[1:] %}{% else %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}{% if m.role == 'user' %}[INST] {% if loop.last and rule is defined %}{{ rule }}\n\n"
    "{% endif %}{{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
PHI_3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
NO_RULES = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}" + PHI_3
FORMS = {
    "chatml": CHATML, "llama 3": LLAMA_3, "gemma": GEMMA, "mistral": MISTRAL, "phi 3": PHI_3, "no system": NO_RULES
}  # fmt: skip
CHATS = [
    ("What is it?",),
    ("Hello there", "Good morning!", "And?"),
    ("Ä {{ .Content }} <|user|>", "two\n\nlines\tand a tab", "x", "{% if %}", "a  b", "'\"", "1 < 2 & 3"),
]
RULES = [None, "Speak Latin.", "Two\nlines, and {{ .System }}"]
FOLDER = cases() / "templates"
PATHS = sorted(FOLDER.glob("*.jinja")) if FOLDER.is_dir() else []


def made(source: str) -> ChatTemplate:
    return ChatTemplate(source, TOKENS, known_tokens=KNOWN)


def same(template: ChatTemplate, found: GoTemplate) -> None:
    for contents in CHATS:
        for rule in RULES if not found.system_refused else RULES[:1]:
            messages = talk(contents, rule)
            theirs = template.render_plain(messages, add_generation_prompt=True)
            assert ollama(found.text, messages, found.system) == theirs


@pytest.mark.parametrize("name", FORMS)
def test_the_same_text(name: str) -> None:
    template = made(FORMS[name])
    found = go_template(template)
    assert isinstance(found, GoTemplate)
    same(template, found)
    assert found.trims == (name == "llama 3")
    assert found.system_refused == (name == "no system")
    assert found.system == ("You are a small assistant." if name == "chatml" else None)


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_that_was_begun_stays_open(name: str) -> None:
    found = go_template(made(FORMS[name]))
    assert isinstance(found, GoTemplate)
    chat = [*talk(("Hello there",)), {"role": "assistant", "content": "Good mor"}]
    assert ollama(found.text, chat, found.system).endswith("Good mor")


def test_a_token_that_ollama_adds_itself_is_left_to_it() -> None:
    with_bos, without = go_template(made(LLAMA_3)), go_template(made(LLAMA_3), drop_bos="<s>")
    assert isinstance(with_bos, GoTemplate)
    assert isinstance(without, GoTemplate)
    for rule in RULES:
        messages = talk(CHATS[1], rule)
        assert ollama(with_bos.text, messages) == "<s>" + ollama(without.text, messages)
    refused = go_template(made(PHI_3), drop_bos="<s>")
    assert refused == "the tokenizer puts '<s>' before every text, and the template does not"


NOT = {
    "the day": (CHATML + "{{ strftime_now('%d') }}", "tells the day"),
    "reasoning cut": (
        CHATML.replace("message['content']", "message['content'].split('</think>')[-1]"), "takes reasoning out"
    ),
    "reasoning written": (
        CHATML.replace("message['content']", "(message.reasoning_content or '') + message['content']"),
        "writes the reasoning",
    ),
    "answers left out": (
        "{% for m in messages if m.role == 'user' %}[INST]{{ m.content }}{% endfor %}", "leaves contents out"
    ),
    "numbered": ("{% for m in messages %}{{ loop.index }}: {{ m.content }}\n{% endfor %}", "not all written alike"),
    "upper case": ("{% for m in messages %}{{ m.content | upper }}\n{% endfor %}", "leaves contents out"),
    "by length": (
        CHATML.replace("message['content']", "(message['content'] + ('!' if message['content'] | length < 9 else ''))"),
        "not all written alike",
    ),
    "a short chat is refused": (
        "{% if messages | length < 3 %}{{ raise_exception('too short') }}{% endif %}" + PHI_3, "too short"
    ),
    "half trimmed": (CHATML.replace("message['content']", "message['content'].lstrip()"), "changes white space"),
    "no Modelfile can hold it": (CHATML.replace("<|im_end|>", '"""'), "Modelfile can't hold"),
    "Go's own braces": ("{% for m in messages %}{{ '{{' }}{{ m.content }}{% endfor %}", "Modelfile can't hold"),
    "unseen characters": (CHATML.replace("<|im_end|>", "\u200b"), "Modelfile can't hold"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT)
def test_what_is_not_translated(what: str) -> None:
    source, reason = NOT[what]
    found = go_template(made(source))
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_real_templates_are_translated_rightly_or_not_at_all(path: Path) -> None:
    template = made(path.read_text(encoding="utf-8"))
    found = go_template(template)
    if isinstance(found, GoTemplate):
        same(template, found)


@pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")
def test_half_of_the_real_templates_are_translated() -> None:
    found = [go_template(made(path.read_text(encoding="utf-8"))) for path in PATHS]
    assert sum(isinstance(one, GoTemplate) for one in found) >= 40
