"""fastokens in the place of the `tokenizers` library: several times as fast, and used only where it is as exact.

`tokenizers` is the truth: see `compared`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from outlive.run.errors import InputError
from outlive.text.compared import KEY, Compared, self_test_texts
from outlive.text.tokenizer import Tokenizer
from outlive.text.words import word_by_word

TokenizeWith = Literal["auto", "tokenizers", "fastokens"]
_FIX = f"set {KEY}=tokenizers"


def tokenize_with(tokenizer: Tokenizer, how: TokenizeWith, say: Callable[[str], None]) -> None:
    """Make a tokenizer give the ids of many texts in less time: by fastokens, where `how` asks for it or, with "auto",
    where it is installed and as exact; else by the library, word by word where that is as exact.

    Raises InputError where "fastokens" is asked for and can't be used. `say` tells why "auto" does not use it.
    """
    if how != "tokenizers" and not isinstance(tokenizer.encoder, Fast):
        tokenizer.encoder = _fastokens(tokenizer, how, say) or tokenizer.encoder
    tokenizer.encoder = tokenizer.encoder or word_by_word(tokenizer)


def _fastokens(tokenizer: Tokenizer, how: TokenizeWith, say: Callable[[str], None]) -> Fast | None:
    try:
        fast = Fast(tokenizer.backend)
    except ImportError:
        if how == "fastokens":
            fix = f"pip install 'outlive[fast]', or {_FIX}"
            raise InputError("fastokens is not installed", where=KEY, fix=fix) from None
        return None
    except Exception as error:  # it raises what it likes for a tokenizer that it does not know
        why = str(error).strip() or type(error).__name__
        reason = f"fastokens does not take this tokenizer: {why.splitlines()[0]}"
    else:
        different = fast.first_difference(self_test_texts(tokenizer))
        if different is None:
            return fast
        reason = f"fastokens gives other ids than tokenizers for the text {different[:60]!r}"
    if how == "fastokens":
        raise InputError(reason, where=f"{KEY}: {tokenizer.folder}", fix=_FIX)
    say(f"{reason}; tokenizers is used")
    return None


class Fast:
    """A tokenizer of fastokens, made from one of `tokenizers`, with which it is compared on the way.

    Raises ImportError, and whatever fastokens raises for a tokenizer that it does not know.
    """

    def __init__(self, truth: Backend) -> None:
        from fastokens import Tokenizer as Made

        self._truth, self._split_special = truth, bool(truth.encode_special_tokens)
        self._fast: Any = Made.from_json_str(truth.to_str())
        self._compared = Compared(truth, "fastokens", _FIX)

    def __reduce__(self) -> tuple[type[Fast], tuple[Backend]]:
        return Fast, (self._truth,)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return list(self._fast.encode(text, False, self._split_special).ids)

    def encode_all(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """The ids of each text. Raises WorkError where a text that is compared shows a difference."""
        ids, offsets = self._fast.encode_batch_flat(list(texts), False, self._split_special)
        flat = np.frombuffer(ids, np.uint32).astype(np.int32)
        bounds = np.frombuffer(offsets, np.uint64).tolist()
        found = [flat[bounds[place] : bounds[place + 1]] for place in range(len(texts))]
        self._compared.check(texts, found)
        return found

    def first_difference(self, texts: Sequence[str]) -> str | None:
        """The first text that gets other ids than from `tokenizers`; None where all are equal."""
        return self._compared.first_difference(self.encode, texts)
