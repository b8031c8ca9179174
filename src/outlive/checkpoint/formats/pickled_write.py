"""Write one file of torch.save with a nested state dict, which torch.load(weights_only=True) opens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from outlive.checkpoint.arrays import chunks, dtype_of
from outlive.checkpoint.building import Building
from outlive.checkpoint.formats.torch_archive import OVERHEAD, described, write_many
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import WorkError


def write_pickled(
    building: Building, name: str, value: Mapping[Any, Any], *, dtype: str | None = None, finite: Collection[str] = ()
) -> None:
    """Write `value`, dicts and lists of our tensors and of plain values, as the file `name`.

    dtype: bf16, fp16 or fp32, for the floating ones. Tensors named in `finite`, by their keys joined with dots, have
    to be finite. Each is read a block at a time. Raises InputError for a value that is not plain, WorkError where a
    number is not finite and where the disk refuses.
    """
    storages: list[Callable[[], Iterator[memoryview]]] = []
    sizes: list[int] = []

    def put(part: Any, keys: tuple[Any, ...]) -> Any:
        if isinstance(part, Tensor):
            full = ".".join(map(str, keys))
            storages.append(partial(_pieces, part, full, dtype, full in finite))
            sizes.append(part.num_bytes + OVERHEAD)
            return described(dtype_of(part, dtype), tuple(part.shape), str(len(storages) - 1))
        if isinstance(part, Mapping):
            return {inner: put(each, (*keys, inner)) for inner, each in part.items()}
        if isinstance(part, (list, tuple)):
            return type(part)(put(each, (*keys, place)) for place, each in enumerate(part))
        return part

    content = put(value, ())
    with building.stream(name, sum(sizes)) as file:
        write_many(file, content, storages)


def _pieces(tensor: Tensor, name: str, dtype: str | None, is_checked: bool) -> Iterator[memoryview]:
    for block, is_finite in chunks(tensor, dtype, check=is_checked):
        if not is_finite:
            raise WorkError(
                f"{name} holds NaN or infinity as {dtype_of(tensor, dtype)}: nothing is written",
                fix="write it as bf16 or fp32, which hold larger numbers than fp16",
            )
        yield block
