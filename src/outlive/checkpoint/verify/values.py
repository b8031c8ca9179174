"""The numbers of a checkpoint: what no weight looks like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import xxhash

from outlive.checkpoint.tensors.dtypes import DTYPES, Array, is_finite, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.finding import Finding, some
from outlive.run.errors import OutliveError

PAGE = 4096  # bytes: what a crash leaves unwritten is a multiple of it
SMALL = 64  # elements: shorter tensors may be equal by chance
_TIED = ("lm_head.weight", "embed_tokens.weight", "output.weight", "token_embd.weight", "wte.weight")  # may be equal
FAR = 1e5  # times the mean of the others: an exponent bit that flipped makes a number some 1e19 times larger


class _Look:
    """What is seen of a tensor while it is read once, block by block."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor = name, tensor
        self.finite, self.seen, self.zeros_at_end = True, 0, 0
        self.longest = self.longest_start = 0  # of the zeros that follow each other, elements
        self.others, self.largest, self.digest = 0.0, 0.0, xxhash.xxh3_128()
        for box in tensor.blocks():
            self._add(np.ascontiguousarray(tensor.read(box)).reshape(-1))

    def _add(self, raw: Array) -> None:
        self.digest.update(raw.view(np.uint8).data)
        self._zeros(raw)
        if not DTYPES[self.tensor.dtype].is_float:
            return
        if not is_finite(raw, self.tensor.dtype):
            self.finite = False
            return
        values = np.abs(to_float32(raw, self.tensor.dtype))
        place = int(values.argmax()) if len(values) else 0
        largest = float(values[place]) if len(values) else 0.0
        values[place : place + 1] = 0  # apart from the others: it may be so large that they vanish beside it
        self.others += float(values.sum(dtype=np.float64)) + min(largest, self.largest)
        self.largest = max(self.largest, largest)

    def _zeros(self, raw: Array) -> None:
        other = np.flatnonzero(raw.view(f"u{raw.itemsize}") if raw.itemsize <= 8 else raw)
        bounds = np.concatenate([[-1 - self.zeros_at_end], other, [len(raw)]])
        gaps = np.diff(bounds) - 1
        place = int(gaps.argmax())
        if gaps[place] > self.longest:
            self.longest, self.longest_start = int(gaps[place]), self.seen + int(bounds[place]) + 1
        self.zeros_at_end = int(gaps[-1])
        self.seen += len(raw)

    @property
    def is_zero(self) -> bool:
        return self.longest == self.tensor.size > 0

    @property
    def has_a_hole(self) -> bool:
        """Whether zeros fill pages of it, and no whole rows (an embedding has such for unused tokens)."""
        width, row = DTYPES[self.tensor.dtype].width, int(np.prod(self.tensor.shape[1:], dtype=np.int64))
        enough = self.longest * width >= PAGE and not self.is_zero
        are_rows = len(self.tensor.shape) > 1 and self.longest % row == 0 == self.longest_start % row
        return enough and not are_rows

    @property
    def lacks_rows(self) -> bool:
        """Whether whole rows that follow each other, a sixteenth of all or more, are zeros."""
        row = int(np.prod(self.tensor.shape[1:], dtype=np.int64))
        is_matrix = len(self.tensor.shape) > 1 and row > 0 and not self.is_zero
        rows = (self.longest - -self.longest_start % row) // row if is_matrix else 0
        return rows >= 2 and rows * 16 >= self.tensor.shape[0]

    @property
    def is_far(self) -> bool:
        """Whether the largest number is far from the mean of the others."""
        mean = self.others / max(self.tensor.size - 1, 1)
        return self.tensor.size >= SMALL and self.largest > FAR * mean > 0

    @property
    def is_constant(self) -> bool:
        return abs(self.largest * (self.tensor.size - 1) - self.others) <= 1e-6 * self.others


def look_at_values(tensors: Mapping[str, Tensor], places: Mapping[str, str]) -> Iterator[Finding]:
    """Read every tensor once. `places`: the file of each."""
    looks: list[_Look] = []
    for name, tensor in tensors.items():
        try:
            looks.append(_Look(name, tensor))
        except OutliveError as error:
            yield Finding(
                "error", "damaged_file", f"{name}: {error.what}", error.where or places[name], error.fix or ""
            )
    for kind, level, wrong, what, fix in (
        ("not_finite", "error", [one for one in looks if not one.finite], "NaN or infinity in",
         "use a checkpoint from before the numbers went wrong"),
        ("zeroed", "error", [one for one in looks if one.finite and one.has_a_hole],
         "a stretch of zeros, as a crash leaves it, in", "copy it again from where it is whole"),
        ("all_zero", "warning", [one for one in looks if one.is_zero and not _may_be(one)],
         "nothing but zeros in", "copy it again from where it is whole, unless it was never trained"),
        ("far_value", "warning", [one for one in looks if one.finite and one.is_far],
         f"a number more than {FAR:,.0f} times the others, as a flipped bit makes it, in",
         "compare the folder with its origin: `outlive verify --against`"),
    ):  # fmt: skip
        if wrong:
            names = {one.name for one in wrong}
            yield Finding(level, kind, f"{what} {some(names)}", places[min(names)], fix)  # type: ignore[arg-type]
    yield from _copies(looks, places)
    yield from _lost_rows(looks, places)


def _lost_rows(looks: list[_Look], places: Mapping[str, str]) -> Iterator[Finding]:
    """Rows of zeros in most matrices: pieces of a rank that were lost when the checkpoint was put together. (In one
    matrix they may be right: unused tokens, units that were pruned.)"""
    matrices = [one for one in looks if len(one.tensor.shape) > 1 and not one.is_zero]
    lost = [one.name for one in matrices if one.lacks_rows]
    if len(lost) > 1 and 2 * len(lost) >= len(matrices):
        what = f"{len(lost)} of {len(matrices)} matrices have rows of zeros, as a lost piece leaves them: {some(lost)}"
        fix = "put the checkpoint together again, with the files of all ranks"
        yield Finding("error", "zero_rows", what, places[min(lost)], fix)


def _may_be(look: _Look) -> bool:
    """Whether zeros are right: in biases and norms, and in adapters before their training."""
    return len(look.tensor.shape) < 2 or "lora_B" in look.name or "lora_embedding_A" in look.name


def _copies(looks: list[_Look], places: Mapping[str, str]) -> Iterator[Finding]:
    """Matrices of other names with the same bytes: one shard over another, or layers that were merged as copies."""
    by_content = defaultdict(list)
    for look in looks:
        is_matrix = len(look.tensor.shape) > 1 and look.tensor.size >= SMALL
        if is_matrix and look.finite and look.largest > 0 and not look.is_constant:
            by_content[look.tensor.shape, look.digest.hexdigest()].append(look.name)
    same = [names for names in by_content.values() if len(names) > 1]
    same = [names for names in same if not all(name.endswith(_TIED) for name in names)]
    if same:
        pairs = "; ".join(f"{names[0]} = {names[1]}" for names in sorted(same)[:2])
        what = f"{len(same)} tensors hold the same bytes as another: {pairs}"
        fix = "compare with the origin: a shard may have been copied over another (copied layers of a merge are fine)"
        yield Finding("warning", "same_bytes", what, places[same[0][0]], fix)
