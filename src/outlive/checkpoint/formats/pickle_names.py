"""The names that a pickle may use, and what each stands for here. Nothing is imported and no code of theirs runs.

A reader of another format adds its names to `NAMES`. Whatever is not in it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outlive.checkpoint.formats.strided import MAX_AXES, checked_shape, of_storage
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.stored import File
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError


@dataclass(eq=False)
class Record:
    """An object that is only kept: the name of its class, what it was made with, its state. Equal to itself only."""

    kind: str
    args: tuple[Any, ...] = ()
    state: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute of its state."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default


@dataclass(frozen=True)
class Global:
    """A name of the table. make: what a call of it gives; None: a Record."""

    name: str
    make: Callable[..., Any] | None = field(default=None, compare=False)

    def __call__(self, args: tuple[Any, ...]) -> Any:
        return Record(self.name, args) if self.make is None else self.make(*args)


@dataclass(frozen=True)
class Storage:
    """The numbers of tensors: `elements` of `dtype` (None: bytes) from byte `offset` of a file on."""

    dtype: str | None
    elements: int
    file: File
    offset: int


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    return _rebuilt(storage, storage.dtype, first, shape, strides, rest[2:])


def _tensor_of_bytes(
    storage: Any, first: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Tensor:
    return _rebuilt(storage, dtype, first, shape, strides, rest)


def _rebuilt(storage: Any, dtype: Any, first: Any, shape: Any, strides: Any, flags: tuple[Any, ...]) -> Tensor:
    """flags: a dict of what torch would still do with the numbers (conjugate, negate), if there is one."""
    if not isinstance(storage, Storage) or type(first) is not int or not isinstance(strides, (tuple, list)):
        raise TypeError("a tensor without a storage")
    if not isinstance(dtype, str):
        raise TypeError("a tensor without a type")
    if any(flags):
        raise TypeError("a tensor that is only the conjugate or the negative of what is stored")
    where = str(storage.file.path)
    if dtype not in DTYPES:
        raise InputError(f"a tensor is of the type {dtype[:40]}", where=where, fix=f"known are {', '.join(DTYPES)}")
    shape = checked_shape(shape, "a tensor", where)
    if len(strides) != len(shape) or not all(type(stride) is int for stride in strides):
        raise TypeError("a tensor whose strides do not fit its shape")
    elements = storage.elements if storage.dtype else storage.elements // DTYPES[dtype].width
    return of_storage(dtype, shape, strides, storage.file, storage.offset, elements, first)


def _of_type(function: Any, kind: Any, args: Any, state: Any = None) -> Any:
    """A tensor of a subclass (`kind`), or with attributes (`state`): the tensor alone."""
    if not isinstance(function, Global) or not isinstance(args, tuple) or function.make is _of_type:
        raise TypeError("a tensor that nothing makes")
    return function(args)


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    if not isinstance(numbers, (tuple, list)) or len(numbers) > MAX_AXES:
        raise TypeError("a torch.Size that is none")
    return tuple(numbers)


def _ordered(pairs: Any = ()) -> dict[Any, Any]:
    """Today's writers fill the dict afterwards."""
    if pairs:
        raise TypeError("a dict as Python 2 wrote it")
    return {}


def _path(*parts: Any) -> str:
    if sum(len(part) for part in parts) > 1 << 16:
        raise ValueError("a path that is too long")
    return "/".join(parts)


def _first(value: Any, *rest: Any) -> Any:
    return value


_CHECKPOINT = "torch.distributed.checkpoint"
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "UntypedStorage": None,
}  # fmt: skip
_OTHER_DTYPES = (  # their names are known, to say that tensors of them are not read
    "complex128", "complex32", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "qint8",
    "quint8", "qint32",
)  # fmt: skip
_MADE: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": lambda *args: {},
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.serialization._get_layout": _first,
    "pathlib.PosixPath": _path,
    "pathlib.PurePosixPath": _path,
    "pathlib.WindowsPath": _path,
    "pathlib._local.PosixPath": _path,  # Python 3.13
}
_KEPT = (
    *(f"torch.{name}" for name in ("device", "Tensor", "preserve_format", "contiguous_format", "strided")),
    "torch.nn.parameter.Parameter",
    *(
        f"{_CHECKPOINT}.metadata.{name}"
        for name in (
            "Metadata", "MetadataIndex", "ChunkStorageMetadata", "TensorStorageMetadata", "TensorProperties",
            "BytesStorageMetadata", "StorageMeta", "_MEM_FORMAT_ENCODING",
        )
    ),
    f"{_CHECKPOINT}.filesystem._StorageInfo",
    *(
        f"{_CHECKPOINT}.planner.{name}"  # Megatron's all_local_plans
        for name in ("SavePlan", "WriteItem", "TensorWriteData", "WriteItemType", "BytesIOWriteData")
    ),
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
    "argparse.Namespace",
    "_io.BytesIO",
    *(f"builtins.{name}" for name in ("set", "frozenset", "list", "dict", "int", "float", "complex", "slice")),
    "builtins.bytearray",
    *(
        f"{module}.{name}"  # states of random numbers
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("_reconstruct", "scalar")
    ),
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
)  # fmt: skip
NAMES: dict[str, Any] = {
    **{name: Global(name, make) for name, make in _MADE.items()},
    **{name: Global(name) for name in _KEPT},
    **{f"torch.{name}": name for name in (*DTYPES, *_OTHER_DTYPES)},
}
STORAGES: dict[str, str | None] = {
    f"{module}.{name}": dtype
    for module in ("torch", "torch.storage", "torch.cuda")
    for name, dtype in _STORAGES.items()
}
NAMES |= {name: Global(name) for name in STORAGES}
