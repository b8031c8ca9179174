"""llama.cpp's side of the GGUF part of `make prove`; runs in its own environment, where Outlive is not installed.

    python benchmarks/in_llama_worker.py '{"file": GGUF, "prompts": [[1, 2]], "greedy": 8, "texts": ["Hi"], "out": NPZ}'

Writes into OUT: `logits_0` … float32 [tokens, vocabulary] of each prompt, and `greedy_0` … the ids that greedy decoding
adds, a token at a time; prints the ids of `texts` as JSON. Keys and values are kept in float32. A file that llama.cpp
doesn't take ends with what it said on stderr.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

F32 = 0  # of enum ggml_type
_WARNING = 3  # of enum ggml_log_level


class Reader:
    """A GGUF file in llama.cpp. Raises RuntimeError with what llama.cpp said where it doesn't take the file."""

    def __init__(self, file: str) -> None:
        self.said: list[str] = []
        self._log = llama_cpp.llama_log_callback(self._hear)
        llama_cpp.llama_log_set(self._log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        how = llama_cpp.llama_model_default_params()
        how.use_extra_bufts = False  # no kernels for repacked weights: they round what they are multiplied with
        how.check_tensors = True
        self.model = llama_cpp.llama_model_load_from_file(file.encode(), how)
        if not self.model:
            raise RuntimeError(self._message())
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.num_tokens = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def _hear(self, level: int, text: bytes, data: Any) -> None:
        if level >= _WARNING:
            self.said.append(text.decode("utf-8", "replace"))

    def _message(self) -> str:
        return " ".join("".join(self.said).split())[-600:]

    def run(self, prompt: Sequence[int], greedy: int) -> tuple[Any, list[int]]:
        """Logits [tokens, vocabulary] of a prompt in one batch, and the ids that follow it, each the likeliest."""
        how, length = llama_cpp.llama_context_default_params(), len(prompt) + greedy
        how.n_ctx = how.n_batch = how.n_ubatch = max(length, 64)
        how.n_threads = how.n_threads_batch = 1
        how.type_k = how.type_v = F32
        how.flash_attn_type = 0
        context = llama_cpp.llama_init_from_model(self.model, how)
        if not context:
            raise RuntimeError(self._message())
        try:
            logits = self._decoded(context, prompt, 0)
            added, last = [], logits[-1]
            for place in range(len(prompt), length):
                added.append(int(last.argmax()))
                if place + 1 < length:
                    last = self._decoded(context, added[-1:], place)[-1]
            return logits, added
        finally:
            llama_cpp.llama_free(context)

    def _decoded(self, context: Any, tokens: Sequence[int], start: int) -> Any:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, 0, 1
        batch.n_tokens = len(tokens)
        try:
            if failed := llama_cpp.llama_decode(context, batch):
                raise RuntimeError(f"llama_decode returned {failed}: {self._message()}")
            values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(tokens), self.num_tokens))
            return values.copy()
        finally:
            llama_cpp.llama_batch_free(batch)

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text in which special tokens are known; nothing is added to it."""
        data = text.encode()
        room = (llama_cpp.llama_token * (len(data) + 8))()
        number = llama_cpp.llama_tokenize(self.vocab, data, len(data), room, len(room), False, True)
        return list(room[:number])


def main() -> None:
    given = json.loads(sys.argv[1])
    reader = Reader(given["file"])
    found: dict[str, Any] = {}
    for number, prompt in enumerate(given["prompts"]):
        found[f"logits_{number}"], added = reader.run(prompt, given["greedy"])
        found[f"greedy_{number}"] = np.array(added, np.int64)
    np.savez(given["out"], **found)
    print(json.dumps([reader.tokenize(text) for text in given.get("texts", [])]))


if __name__ == "__main__":
    main()
