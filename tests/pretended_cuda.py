# ruff: noqa: ANN401
"""A CUDA device that PyTorch's CPU build believes in: tensors hold CPU values and claim to be on
cuda:0.

The project's own code runs on it. A tensor on the wrong device raises, as on a GPU. What a GPU
charges for is counted: kernels launched, and places where the host waits for the device. Import
this before torch. It needs g++. It cannot see what CUDA's kernels refuse, races between streams,
memory or speed.
"""

import ctypes
import importlib.util
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

SOURCE = Path(__file__).with_suffix(".cpp")
PROJECT = str(SOURCE.parent.parent / "mt_cli")


def _load() -> None:
    """Compile the device's guard and hooks, and load them before PyTorch looks for them."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    assert "torch" not in sys.modules
    root = Path(found.origin).parent
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "pretended_cuda.so")
        options = [
            "-shared",
            "-fPIC",
            "-O0",
            "-std=c++20",
            f"-I{root / 'include'}",
            "-o",
            library,
            f"-L{root / 'lib'}",
        ]
        subprocess.run(["g++", str(SOURCE), *options, "-lc10", "-ltorch_cpu"], check=True)
        for each in ("global_deps", "c10", "torch_cpu"):
            name = (
                "libc10.so"
                if each == "c10"
                else f"lib{'torch_' if each == 'global_deps' else ''}{each}.so"
            )
            ctypes.CDLL(str(root / "lib" / name), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


_load()

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import _foreach_utils  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

Model = TypeVar("Model", bound=nn.Module)
CUDA = torch.device("cuda", 0)
LAUNCH_NOTHING = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze",
    "squeeze", "split", "split_with_sizes", "unbind", "detach", "alias", "as_strided", "unfold", "diagonal",
    "_reshape_alias", "lift_fresh", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip
WAITED_FOR = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"}
"""Calls that end only when the device has got so far, because their result or its size is a number."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


@dataclass
class Counts:
    """What has been asked of the device."""

    launches: Counter[str] = field(default_factory=Counter)
    """Kernels, by the name of the call."""
    waits: Counter[str] = field(default_factory=Counter)
    """Waits of the host and blocking copies, by call and line of the project."""

    def wait(self, what: str) -> None:
        """Count a wait at the line of the project that is running."""
        stack = traceback.extract_stack()
        where = next((f for f in reversed(stack) if f.filename.startswith(PROJECT)), None)
        self.waits[
            what if where is None else f"{what} at {Path(where.filename).name}:{where.lineno}"
        ] += 1


counts = Counts()


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of what happens in the block alone."""
    global counts  # noqa: PLW0603
    outer, counts = counts, Counts()
    try:
        yield counts
    finally:
        counts = outer


class OnDevice(Tensor):
    """A tensor on cuda:0, for all that looks at it; its values are on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls: type, values: Tensor) -> "OnDevice":
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(),
            dtype=values.dtype, device=CUDA,
        )  # fmt: skip
        made.held = values
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnDevice({self.held})"

    def tolist(self) -> Any:
        """The values, for which the host waits."""
        counts.wait("tolist")
        return self.held.tolist()

    def numpy(self, **_: object) -> Any:
        """What a tensor on a GPU answers."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, call: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run `call` on the values."""
        return _run(call, args, kwargs or {})


class Pretending(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whatever is made on the device cuda in this block is `OnDevice`."""

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `call` on the device, if it names it or any argument is there."""
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if (device is not None and torch.device(device).type == "cuda") or _are_on_device(
            args, kwargs
        ):
            return _run(call, args, kwargs)
        return call(*args, **kwargs)


def _are_on_device(*values: object) -> bool:
    return any(isinstance(each, OnDevice) for each in tree_leaves(values))


def _run(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    name = call._schema.name.split("::")[1]
    is_there = _are_on_device(args, kwargs)
    stays = is_there
    given = dict(kwargs)
    if given.get("device") is not None:
        stays = torch.device(given["device"]).type == "cuda"
        given["device"] = torch.device("cpu")
    given.pop("pin_memory", None)
    _count(name, args, given, is_there=is_there, stays=stays)
    plain_args, plain_kwargs = tree_map(
        lambda x: x.held if isinstance(x, OnDevice) else x, (tuple(args), given)
    )
    schema = call._schema
    written = [
        args[i] if i < len(args) else kwargs[x.name]
        for i, x in enumerate(schema.arguments)
        if x.alias_info is not None and x.alias_info.is_write
    ]
    out = (
        _recorded(lambda: call(*plain_args, **plain_kwargs), written=written)
        if stays
        else call(*plain_args, **plain_kwargs)
    )
    if written and schema.returns and all(x.alias_info is not None for x in schema.returns):
        return (
            written[0] if len(schema.returns) == 1 else tuple(written)
        )  # in place: the same objects
    return tree_map(lambda x: OnDevice(x) if isinstance(x, Tensor) else x, out) if stays else out


class Graph:
    """A CUDA graph: what the device did while it was captured, to be done again."""

    def __init__(self) -> None:
        self.steps: list[tuple[Callable[[], Any], Any]] = []
        self.before: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
        """What capturing has changed, as it was, because a GPU does nothing yet."""

    def pool(self) -> None:
        """Its memory."""

    def replay(self) -> None:
        """Do it again, into the same memory."""
        counts.launches["graph"] += 1
        for compute, out in self.steps:
            for new, old in zip(tree_leaves(compute()), tree_leaves(out), strict=True):
                if isinstance(old, Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


recording: Graph | None = None


@contextmanager
def capture(graph: Graph, pool: None = None) -> Iterator[None]:
    """Record in `graph` what happens in the block, and undo it."""
    global recording  # noqa: PLW0603
    recording = graph
    try:
        with counted():
            yield
    finally:
        recording = None
        for tensor, value in reversed(graph.before.values()):
            tensor.copy_(value)


def _recorded(compute: Callable[[], Any], *, written: Sequence[Any] = ()) -> Any:
    """What `compute` gives; it writes to the tensors `written`."""
    if recording is None:
        return compute()
    for each in tree_leaves(written):
        if isinstance(each, OnDevice):
            key = (each.held.data_ptr(), each.held.shape, each.held.stride())
            recording.before.setdefault(key, (each.held, each.held.clone()))
    out = compute()
    recording.steps.append((compute, out))
    return out


def _count(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_there: bool, stays: bool
) -> None:
    if name == "copy_":
        to, source = args[:2]
        if isinstance(source, OnDevice) and not isinstance(to, OnDevice):
            counts.wait("copy to the host")
        elif (
            isinstance(to, OnDevice)
            and not isinstance(source, OnDevice)
            and not (args[2:] or kwargs.get("non_blocking"))
        ):
            counts.wait("blocking copy to the device")
    elif name == "_to_copy":
        if is_there and not stays:
            counts.wait("copy to the host")
        elif stays and not is_there and not kwargs.get("non_blocking"):
            counts.wait("blocking copy to the device")
    elif is_there:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in INDEXING:
            indices = [x for x in tree_leaves(args[1]) if isinstance(x, Tensor)]
            if any(x.dtype == torch.bool or not isinstance(x, OnDevice) for x in indices):
                counts.wait(f"{name} by a mask or by places on the host")
            tensors = [args[0]]
        elif name in WAITED_FOR:
            counts.wait(name)
        strangers = [tuple(x.shape) for x in tensors if not isinstance(x, OnDevice) and x.dim() > 0]
        if strangers:
            raise RuntimeError(f"{name}: tensors {strangers} are on the CPU, others on cuda:0")
    if name not in LAUNCH_NOTHING:
        counts.launches[name] += 1


def moved(model: Model) -> Model:
    """`model` with its parameters and buffers on the device (`.to` cannot); what was tied stays
    tied.
    """
    there: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in there:
                    there[id(parameter)] = nn.Parameter(OnDevice(parameter.detach().clone()))
                module._parameters[name] = there[id(parameter)]
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else OnDevice(buffer.clone())
    return model


class _FusedAttention(torch.autograd.Function):
    """A GPU's kernel for the whole of an attention, in the layout of its output; without dropout."""

    @staticmethod
    def forward(
        ctx: Any, q: OnDevice, k: OnDevice, v: OnDevice, bias: OnDevice | None, is_causal: bool
    ) -> Tensor:
        """`q` (B, H, T, K) attends to `k`, `v` (B, H, S, K), with `bias` on the scores."""
        if any(
            not isinstance(each, OnDevice) or each.dtype != q.dtype
            for each in (q, k, v, bias)
            if each is not None
        ):
            raise RuntimeError("attention: inputs of several devices or types")
        counts.launches["attention"] += 1
        counts.launches["attention, input copied"] += sum(
            each.stride(-1) != 1 for each in (q, k, v)
        )
        if bias is not None and any(stride % 8 for stride in bias.stride()[:-1]):
            counts.launches["attention, bias copied"] += 2

        def compute() -> Tensor:
            with torch.enable_grad():
                ctx.leaves = [each.held.detach().requires_grad_() for each in (q, k, v)]
                ctx.out = F_ATTENTION(
                    *ctx.leaves, None if bias is None else bias.held, is_causal=is_causal
                )
            return _as_stored(ctx.out.detach())

        return OnDevice(_recorded(compute))

    @staticmethod
    def backward(ctx: Any, grad: OnDevice) -> tuple[Tensor | None, ...]:
        """Gradients of q, k and v."""
        counts.launches["attention, backward"] += 1
        grads = _recorded(
            lambda: [_as_stored(x) for x in torch.autograd.grad(ctx.out, ctx.leaves, grad.held)]
        )
        return (*map(OnDevice, grads), None, None)


def _as_stored(x: Tensor) -> Tensor:
    """`x` (B, H, T, K) as the kernel writes it, (B, T, H, K)."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


F_ATTENTION: Callable[..., Tensor] = nn.functional.scaled_dot_product_attention


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    if not q.is_cuda:
        return F_ATTENTION(q, k, v, attn_mask, dropout_p, is_causal)
    assert dropout_p == 0.0, "not pretended"
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        q, k, v = (each.to(dtype) for each in (q, k, v))
        attn_mask = None if attn_mask is None else attn_mask.to(dtype)
    return _FusedAttention.apply(q, k, v, attn_mask, is_causal)  # type: ignore[no-any-return, no-untyped-call]


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """In this block PyTorch has a CUDA device, with bf16."""
    make = torch.tensor

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        if device is None or torch.device(device).type != "cuda":
            return make(data, **options)
        counts.wait("torch.tensor")  # it copies from memory that is not pinned
        return OnDevice(make(data, **options))

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch, "tensor", tensor),
        (torch.cuda, "_lazy_init", lambda: None),
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "CUDAGraph", Graph),
        (torch.cuda, "graph", capture),
        (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
        (torch.cuda, "mem_get_info", lambda device=None: (60 << 30, 80 << 30)),
        (torch.cuda, "get_device_capability", lambda device=None: (9, 0)),
        (torch, "inference_mode", torch.no_grad),  # it keeps views from being wrapped
        (nn.functional, "scaled_dot_product_attention", _attention),
        (Tensor, "pin_memory", lambda self: self),
        (_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: ["cuda"]),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    _foreach_utils._foreach_supported_types.append(OnDevice)  # type: ignore[arg-type]
    torch.__future__.set_overwrite_module_params_on_conversion(
        True
    )  # values cannot be exchanged in place
    try:
        with Pretending():  # type: ignore[no-untyped-call]
            yield
    finally:
        _foreach_utils._foreach_supported_types.remove(OnDevice)  # type: ignore[arg-type]
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        for owner, name, value in before:
            setattr(owner, name, value)
