"""A device that is not the CPU, for machines that have no other: it computes on the CPU and refuses to mix.

`Elsewhere` wraps a CPU tensor and says that it lies on "meta", a device of every torch build. Inside `elsewhere()`
tensors made for or moved to that device are such ones, and an operation on tensors of both devices raises, as on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "meta"
# These take a CPU tensor beside one of a GPU: to copy it, or to move an index themselves if what it indexes is there.
MAY_MIX = {"aten::copy_", "aten::_to_copy"}
MAY_INDEX = {"aten::index.Tensor", "aten::index_put_"}


class Elsewhere(Tensor):
    """A tensor that lies elsewhere; `here` is its data."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )
        made.here = here
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.here})"

    def tolist(self) -> Any:
        return self.here.tolist()

    def __getitem__(self, index: Any) -> Any:
        # torch would make the index of a list on this device by itself, without data.
        parts = index if isinstance(index, tuple) else (index,)
        return super().__getitem__(tuple(torch.tensor(one) if isinstance(one, list) else one for one in parts))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = any(isinstance(tensor, Elsewhere) for tensor in tensors)
    here = any(not isinstance(tensor, Elsewhere) and tensor.dim() > 0 for tensor in tensors)
    moved_index = func.name() in MAY_INDEX and isinstance(args[0], Elsewhere)
    if there and here and func.name() not in MAY_MIX and not moved_index:
        raise RuntimeError(f"{func.name()}: expected all tensors to be on the same device, found {DEVICE} and cpu")
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    made = func(*tree_map(_here, args), **tree_map(_here, kwargs))
    first = func._schema.arguments[:1]
    if first and first[0].alias_info is not None and first[0].alias_info.is_write:
        return args[0]  # it worked in place
    return tree_map(lambda one: Elsewhere(one) if isinstance(one, Tensor) else one, made) if there else made


def _here(value: Any) -> Any:
    return value.here if isinstance(value, Elsewhere) else value


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Literals(TorchFunctionMode):
    """torch.tensor(...) and new_tensor(...), which no dispatcher sees whole."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == DEVICE:
            return Elsewhere(torch.tensor(*args, **{**kwargs, "device": "cpu"}))
        if func is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            return Elsewhere(args[0].here.new_tensor(*args[1:], **kwargs))
        return func(*args, **kwargs)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Let there be such a device."""
    with _Operations(), _Literals():
        yield


def moved(model: Any) -> Any:
    """The model with all its weights elsewhere."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(Elsewhere(weight.data), requires_grad=False)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else Elsewhere(buffer)
    return model
