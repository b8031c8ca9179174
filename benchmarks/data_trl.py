"""TRL's arms of `make bench-data`; runs in TRL's own environment, where Outlive is not installed.

    python benchmarks/data_trl.py ARM '{"rows": FILE, "tokenizer": DIR, "template": JINJA, "processes": 1}'

`whole` calls TRL's own SFTTrainer._prepare_dataset, on a stand-in with the three attributes that it reads, so that no
model has to be made. Reading the file into a data set is timed apart. Every run has a cache folder of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SEQUENCE_LENGTH = 8_192


def whole(given: dict[str, Any]) -> dict[str, Any]:
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(given["tokenizer"])
    args = SFTConfig(
        output_dir=os.environ["HF_HOME"],
        max_length=SEQUENCE_LENGTH,
        assistant_only_loss=True,
        dataset_num_proc=given["processes"] if given["processes"] > 1 else None,
        report_to=[],
        use_cpu=True,
        bf16=False,
    )
    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=given["template"], completion_only_loss=False)
    started = time.perf_counter()
    dataset = load_dataset("json", data_files=given["rows"], split="train")
    read, cpu = time.perf_counter(), cpu_seconds()
    prepared = SFTTrainer._prepare_dataset(trainer, dataset, tokenizer, args, False, None, "train")
    done, cpu = time.perf_counter(), cpu_seconds() - cpu
    batches = prepared.with_format("arrow").iter(500)
    values = [batch.column("labels").combine_chunks().flatten() for batch in batches]
    return {
        "seconds": done - read,
        "cpu": cpu,
        "reading": read - started,
        "rows": len(prepared),
        "tokens": sum(map(len, values)),
        "targets": sum(int((chunk.to_numpy(zero_copy_only=False) != -100).sum()) for chunk in values),
    }


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in of)


def render(given: dict[str, Any]) -> dict[str, Any]:
    """apply_chat_template(tokenize=False), row by row, of rows that were read before."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given["tokenizer"])
    rows = [json.loads(line)["messages"] for line in Path(given["rows"]).read_text(encoding="utf-8").splitlines()]
    tokenizer.apply_chat_template(rows[0], tokenize=False)  # compiles the template
    started = time.perf_counter()
    for row in rows:
        tokenizer.apply_chat_template(row, tokenize=False)
    return {"seconds": time.perf_counter() - started, "rows": len(rows)}


def packing(given: dict[str, Any]) -> dict[str, Any]:
    """TRL's best fit decreasing as `pack_dataset` runs it: 1,000 rows at a time, tokens (one byte) moved."""
    import numpy as np
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    lengths = np.load(given["lengths"])
    seconds, packs = 0.0, 0
    for start in range(0, len(lengths), 1_000):
        own = lengths[start : start + 1_000]
        offsets = np.concatenate([[0], np.cumsum(own)]).astype(np.int32)
        table = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], dtype=np.int8))})
        started = time.perf_counter()
        packs += len(_pack_bfd(table, given["capacity"]))
        seconds += time.perf_counter() - started
    return {"seconds": seconds, "packs": packs, "tokens": int(lengths.sum()), "rows": len(lengths)}


def versions(given: dict[str, Any]) -> dict[str, Any]:
    return {name: version(name) for name in ("trl", "transformers", "datasets", "tokenizers", "torch")}


ARMS = {"whole": whole, "render": render, "packing": packing, "versions": versions}


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"HF_HOME": cache, "HF_DATASETS_CACHE": str(Path(cache) / "datasets")}
        result = ARMS[sys.argv[1]](json.loads(sys.argv[2]))
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print(json.dumps({**result, "peak_gib": max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 2**20}))


if __name__ == "__main__":
    main()
