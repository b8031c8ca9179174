"""Our arms of `make bench-data`, each in a process of its own: does one thing once, prints one JSON object.

    python benchmarks/data_ours.py ARM '{"rows": FILE, "texts": FILE, "tokenizer": DIR, …}'

Loading the tokenizer is outside of every time, here and in data_trl.py.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outlive.data.conversation import Chat
from outlive.data.mixing import Mixing
from outlive.data.packing import best_fit
from outlive.data.plan import Layout, Mixture, make_plan
from outlive.data.prepare import chat_template, prepare
from outlive.data.samples import SampleMaker
from outlive.run.config import Data, Source
from outlive.text.fast_tokenizer import tokenize_with
from outlive.text.tokenizer import Tokenizer

SEQUENCE_LENGTH = 8_192  # longer than every row: both sides keep every token
Given = dict[str, Any]
Result = dict[str, float]


def whole(given: Given, file: str = "rows") -> Result:
    """File → store: read, check, render with proved spans, tokenise, labels, lints, hashes, store, verified."""
    tokenizer = Tokenizer.load(given["tokenizer"])
    how = "fastokens" if given.get("fastokens") else "tokenizers"
    data = section(given[file], processes=given["processes"], tokenize_with=how)
    with tempfile.TemporaryDirectory() as home:
        os.environ["OUTLIVE_HOME"] = home
        started, cpu = time.perf_counter(), cpu_seconds()
        prepared = prepare(data, tokenizer, chat_template(data, tokenizer))
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
        manifest = prepared.train.stores[0].manifest
    return {
        "seconds": seconds,
        "cpu": cpu,
        "rows": manifest["num_samples"],
        "tokens": manifest["num_tokens"],
        "targets": manifest["num_targets"],
    }


def render_plain(given: Given) -> Result:
    """The render alone, of rows that were read before."""
    tokenizer = opened(given)
    template = chat_template(section(given["rows"]), tokenizer)
    assert template is not None
    rows = read_rows(given["rows"])
    return timed(lambda: [template.render(row["messages"]) for row in rows])


def render_proved(given: Given) -> Result:
    """The render with the proved span of every trained turn, of rows that were read before."""
    tokenizer = opened(given)
    maker = SampleMaker(tokenizer, chat_template(section(given["rows"]), tokenizer))
    chats = [Chat(row["messages"]) for row in read_rows(given["rows"])]
    maker.texts(chats[0])  # learns the template, once for a run
    return timed(lambda: [maker.texts(chat) for chat in chats])


def raw_chats(given: Given) -> Result:
    """One call of the library's encode_batch_fast on the rendered chats, ids taken as lists: the bound."""
    tokenizer = opened(given)
    template = chat_template(section(given["rows"]), tokenizer)
    assert template is not None
    return raw(tokenizer, [template.render(row["messages"]) for row in read_rows(given["rows"])])


def raw_texts(given: Given) -> Result:
    return raw(opened(given), [row["text"] for row in read_rows(given["texts"])])


def raw(tokenizer: Tokenizer, texts: Sequence[str]) -> Result:
    found: list[Any] = []
    encode: Callable[[Sequence[str]], Any] = tokenizer.encode_all if tokenizer.encoder else tokenizer.encode_batch
    result = timed(lambda: found.extend(encode(texts)))
    return {**result, "tokens": sum(map(len, found)), "rows": len(texts)}


def mixing(given: Given) -> Result:
    """The plan of a pass over ten sources mixed by tokens, of the lengths in a file, in windows."""
    import numpy as np

    lengths = np.load(given["lengths"]).astype(np.int32)
    cuts = np.array_split(lengths, 10)
    stores: Any = [Lengths(own) for own in cuts]
    weights = [1.0 + place for place in range(10)]
    started = time.perf_counter()
    mixture = Mixture(stores, weights, Mixing(weights, "tokens", "first"))
    plan = make_plan(mixture, Layout(given["capacity"], 8, window=65_536), 0, 0)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "packs": plan.num_packs,
        "tokens": int((plan.end - plan.start).sum()),
        "rows": len(plan.store),
    }


class Lengths:
    """A store as far as a plan looks at it: lengths, each sample a group of its own."""

    is_whole = True

    def __init__(self, lengths: Any) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def whole_column(self, column: str) -> Any:
        import numpy as np

        return np.arange(len(self.lengths), dtype=np.int64)


def packing(given: Given) -> Result:
    """`best_fit` of the lengths in a file, against the least number of packs that could hold them."""
    import numpy as np

    lengths = np.load(given["lengths"])
    started = time.perf_counter()
    pack_of = best_fit(lengths, given["capacity"])
    seconds = time.perf_counter() - started
    packs = int(pack_of.max()) + 1
    assert np.bincount(pack_of, weights=lengths).max() <= given["capacity"]
    return {"seconds": seconds, "packs": packs, "tokens": int(lengths.sum()), "rows": len(lengths)}


ARMS: dict[str, Callable[[Given], Result]] = {
    "whole": whole,
    "whole_texts": lambda given: whole(given, "texts"),
    "render_plain": render_plain,
    "render_proved": render_proved,
    "raw_chats": raw_chats,
    "raw_texts": raw_texts,
    "packing": packing,
    "mixing": mixing,
}


def opened(given: Given) -> Tokenizer:
    tokenizer = Tokenizer.load(given["tokenizer"])
    if given.get("fastokens"):
        tokenize_with(tokenizer, "fastokens", print)
    return tokenizer


def section(path: str, **settings: Any) -> Data:
    return Data(train=[Source(path=path)], validation=None, sequence_length=SEQUENCE_LENGTH, **settings)


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in of)


def read_rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def timed(work: Callable[[], object]) -> Result:
    started = time.perf_counter()
    work()
    return {"seconds": time.perf_counter() - started}


def main() -> None:
    result = ARMS[sys.argv[1]](json.loads(sys.argv[2]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({**result, "peak_gib": peak}))


if __name__ == "__main__":
    main()
