"""Whether what gives a text's ids in less time gives those of the `tokenizers` library.

`tokenizers` is the truth. Before anything else is used the two have to give equal ids for texts that tokenizers differ
on, this tokenizer's own special tokens among them; after that one text in a thousand is tokenised by both, and a
difference stops the work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from outlive.run.errors import NotTrusted
from outlive.text.tokenizer import Tokenizer

KEY = "data.tokenize_with"
COMPARED = 1000  # of so many texts one is tokenised by both
_SAMPLES = (
    "Hello, world!",
    "it's we'll I'd YOU'RE don’t",
    "  two  blanks ",
    "\n\n\nlines\r\n\tand\ttabs \n ",
    " \xa0\u3000\u2028x",
    "1 12 123 1234 12345678901234567890",
    "3.14e-10 0xFF 1,000,000 ½ Ⅻ ٣٤٥",
    "a" * 300,
    " " * 300,
    "\n" * 100,
    "=" * 200,
    "def f(x):\n    return x ** 2  # done\n\n\nclass A:\n\tpass\n",
    '{"a": [1, 2.5, null], "b": {"c": "d\\n"}}',
    "<a href='x'>&amp;</a>",
    "Größe façade naïve Ångström İstanbul ŞÇ",
    "Ελληνικά Русский язык українська",
    "العربية עברית हिन्दी தமிழ் ไทย",
    "我们在河边走了很久。日本語のテキスト 한국어",
    "e\u0301 a\u0308\u0323 n\u0303o \u0301alone",
    "ﬁ ﬀ ℌ ① ㎏",
    "👍🏽👩\u200d👩\u200d👧\u200d👦🇩🇪❤️",
    "\ufeffbom \u200bzero\u200dwidth \xadsoft",
    "\x00\x01\x7f\x80�\ud7ff\ue000\U0010ffff",
    "CamelCaseWordsAndSNAKE_CASE_words",
    "http://example.org/a?b=c&d=%20#e",
    "!!!???...---___***",
    "“quotes” «guillemets» ‘single’",
    "\\frac{1}{2} $x^2$ \\n \\u00e9",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<s>[INST] x [/INST]</s>",
    "<|endoftext|><|endoftext|>",
    "<think>\n\n</think>",
    "<0x0A>▁▁x",
    "",
    " ",
    "\n",
    "a",
    "'",
    "'s",
    "1",
    "é",
    "\u0301",
    "🙂",
)
_ALPHABETS = (
    "abcdefgh XYZ.,'\n",
    "0123456789 -+.",
    "äöüßéèêñç ’",
    "αβγ дежз",
    "漢字かなカナ、。",
    " \n\t\r",
    "<|>[]/_#im",
    "🙂👍❤️\u200d",
)


class Compared:
    """A comparison of ids with those of `truth`. `name`: of what gives them; `fix`: how to do without it."""

    def __init__(self, truth: Backend, name: str, fix: str) -> None:
        self._truth, self._name, self._fix = truth, name, fix
        self._until_compared = 0

    def check(self, texts: Sequence[str], found: Sequence[npt.NDArray[np.int32]]) -> None:
        """Compare the ids of one text in COMPARED, counted on from call to call. Raises WorkError."""
        place = self._until_compared
        while place < len(texts):
            if found[place].tolist() != (true := self._true(texts[place])):
                theirs, there = found[place].tolist(), f"{texts[place][:100]!r}"
                same = next((at for at, pair in enumerate(zip(theirs, true, strict=False)) if len(set(pair)) > 1), 0)
                what = f"{self._name} gives other ids than tokenizers for the text {there}: at token {same} "
                what += f"{theirs[same : same + 5]}, not {true[same : same + 5]}"
                raise NotTrusted(what, where=KEY, fix=self._fix)  # no fault of the row, which would be left out for it
            place += COMPARED
        self._until_compared = place - len(texts)

    def first_difference(self, encode: Callable[[str], list[int]], texts: Sequence[str]) -> str | None:
        """The first text that gets other ids than from `tokenizers`; None where all are equal."""
        return next((text for text in texts if encode(text) != self._true(text)), None)

    def _true(self, text: str) -> list[int]:
        return list(self._truth.encode(text, add_special_tokens=False).ids)


def self_test_texts(tokenizer: Tokenizer) -> list[str]:
    """Texts on which tokenizers differ: scripts, blanks, digits, marks, and this one's own added tokens in them."""
    made = [*_SAMPLES, *("\n\n".join(_SAMPLES[place::7]) for place in range(7))]
    for text in list(tokenizer.added_tokens)[:200]:
        made += [text, f"a{text}b", f" {text} {text}\n", text[:-1], text.upper(), f"\n{text * 2}"]
    source = random.Random(0)
    for number in range(400):
        alphabet = "".join(source.sample(_ALPHABETS, 1 + number % 4))
        made.append("".join(source.choices(alphabet, k=source.randrange(1, 60))))
    return made
