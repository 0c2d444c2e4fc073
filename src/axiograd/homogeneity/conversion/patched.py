"""A forward that runs the owner's own code and rewrites, as it runs, the functions that are not homogeneous."""

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion.degrees import acts, by_rule, degree_of, follow, rewriting, ruled, suspended, track
from axiograd.homogeneity.conversion.example import Roles
from axiograd.homogeneity.conversion.rewrites import REWRITES, FunctionCall
from axiograd.homogeneity.conversion.scale import only, safe_divide, sample_rms, whole_rms

_ALIASES = {"truediv": "div", "rtruediv": "rdiv", "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}
_ALIASES |= {"radd": "add", "rmul": "mul", "divide": "div", "true_divide": "div", "concatenate": "cat"}


class PatchedForward:
    """Stands in the place of one module's `forward`; its calibrated constants are buffers of that module."""

    def __init__(self, module: nn.Module, roles: Roles | None = None, *, rewrites: bool = True) -> None:
        self.module = module
        #: Of the whole model's arguments, if this is its forward.
        self.roles = roles
        self.rewrites = rewrites
        self.calibrating = False
        self.calls: Counter[str] = Counter()
        self.edits: dict[str, tuple[str, str, str]] = {}
        #: What was decided on the example inputs, by site.
        self.decisions: dict[str, bool] = {}
        self.on_rewrite: Callable[[], None] | None = None

    @property
    def __code__(self) -> CodeType:  # torch.export reads the names of the arguments from it
        code: CodeType = type(self.module).forward.__code__
        return code

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(type(self.module).forward.__get__(self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.roles is None:
            return self._run(args, kwargs)
        with only(list(self.roles.masks(args, kwargs).values())):
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.rewrites:
            return type(self.module).forward(self.module, *args, **kwargs)
        mode = Rewriter(self)
        roles = self.roles or Roles()
        with rewriting(mode):
            for slot, value in roles.by_slot(args, kwargs).items():
                for leaf in tree_leaves(value):
                    track(leaf, degree_of(leaf, default=1.0 if roles.scales(slot) else 0.0))
            with mode:
                return type(self.module).forward(self.module, *args, **kwargs)


class ScaleKeepingForward(PatchedForward):
    """Stands in the place of a hand-written norm's forward: ρ·N(x/ρ), ρ = RMS(x)/r, as `ScaleKeeping` does."""

    site = "homogeneous_radius"
    pace = 0.1

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        degree = degree_of(x, default=1.0)
        with suspended():
            if self.calibrating:
                _calibrate(self.module, self.site, whole_rms(x), self.calls[self.site])
                self.calls[self.site] += 1
                self.edits[self.site] = (type(self.module).__name__, "ρ·N(x/ρ), ρ = RMS(x)/r", "")
            held = self.module.get_buffer(self.site)
            radius = held.clone() if self.module.training else held
            rho = (sample_rms(x) / radius).to(x.dtype)
            y = rho * type(self.module).forward(self.module, safe_divide(x, rho), *args, **kwargs)
            if self.module.training and not self.calibrating:
                with torch.no_grad():
                    held.lerp_(whole_rms(x).to(held), self.pace)
        track(y, degree)
        return y


class Rewriter(TorchFunctionMode):
    """Acts on the functions of one forward, and keeps one calibrated constant per call, by order of execution."""

    def __init__(self, patched: PatchedForward) -> None:
        super().__init__()
        self.patched = patched
        self.ordinals: Counter[str] = Counter()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if not acts(self):
            return func(*args, **kwargs)
        raw = getattr(func, "__name__", "")
        in_place = (
            (raw.endswith("_") and not raw.startswith("__")) or raw.startswith("__i") or bool(kwargs.get("inplace"))
        )
        name = raw.strip("_")
        name = _ALIASES.get(name, name)
        if name == "get":  # a property such as x.shape or x.T
            return self._tracked(func(*args, **kwargs), degree_of(args[0]) if args else 0.0)
        if name == "setitem":
            track(args[0], max(degree_of(args[0]), degree_of(args[2]), key=abs))
            return func(*args)
        operator = ruled(func)
        if operator is not None:
            result = func(*args, **kwargs)
            return self._tracked(result, by_rule(operator, args, kwargs, result))
        rewrite = REWRITES.get(name)
        done = rewrite(FunctionCall(self, name, func, args, kwargs)) if rewrite else None
        if done is None:
            degree = follow(name, args, kwargs)
            return self._tracked(func(*args, **kwargs), degree)
        value, degree = done
        if in_place and args and value is not args[0]:
            value = args[0].copy_(value)
        return self._tracked(value, degree)

    @staticmethod
    def _tracked(value: Any, degree: float) -> Any:
        if isinstance(value, Tensor | tuple | list):
            track(value, degree)
        return value

    def decision(self, kind: str, decide: Callable[[], bool]) -> bool:
        """What was decided for this call on the example inputs; a trace has no numbers to decide on."""
        site = f"{kind}?"
        site += str(self.ordinals[site])
        self.ordinals[f"{kind}?"] += 1
        if self.patched.calibrating:
            self.patched.decisions[site] = decide()
        return self.patched.decisions.get(site, False)

    def constant(self, kind: str, after: str, fit: Callable[[], Tensor]) -> Tensor:
        """The calibrated constant of this call: the n-th of its kind in this forward."""
        patched, module = self.patched, self.patched.module
        site = f"homogeneous_{kind}_{self.ordinals[kind]}"
        self.ordinals[kind] += 1
        if patched.on_rewrite is not None:
            patched.on_rewrite()
        if patched.calibrating:
            with torch.no_grad():
                _calibrate(module, site, fit().detach(), patched.calls[site])
            patched.calls[site] += 1
            patched.edits[site] = (kind, after, _user_line())
        found = module._buffers.get(site)  # noqa: SLF001  # get_buffer would split a dotted name
        if found is None:
            raise ConversionError(
                f"{type(module).__name__}.forward reached {kind!r} at {_user_line()} on a path that it did not take "
                "when it was converted: convert with example inputs that take this path."
            )
        return found


def _calibrate(module: nn.Module, site: str, value: Tensor, calls: int) -> None:
    known = torch.where(value.abs() > 0, value, torch.ones_like(value)) if value.dim() == 0 else value
    held = module._buffers.get(site)  # noqa: SLF001
    if held is None or calls == 0:
        module.register_buffer(site, known.clone())
    else:
        held.lerp_(known, 1.0 / (calls + 1))


#: Files that a call passes through on its way from the line that makes it.
_MACHINERY = ("/axiograd/homogeneity/", "/torch/overrides", "/torch/_", "/torch/utils/", "/torch/nn/functional")


def _user_line() -> str:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # inspect.stack() reads source files, which is slow
    while frame is not None and any(part in frame.f_code.co_filename for part in _MACHINERY):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "torch"
