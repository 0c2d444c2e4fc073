"""Runs a model as it is and writes down what it does to the values that depend on its inputs."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from axiograd.training.held_gates.gates import GATES, INPLACE
from axiograd.training.held_gates.operators import (
    LINEAR,
    LOOKS,
    SHAPED,
    STEPS,
    NotHeldError,
    Place,
    check_linear,
)
from axiograd.training.held_gates.rows import keeps_rows
from axiograd.training.held_gates.tape import Fixed, Logged, Slot, Tape, TapeEntry, Weight, leaves, mapped, results

#: Functions of wrappers that hand values on as they are, by their nodes in autograd's graph.
HANDED_ON = frozenset(
    ("RegisterPostBackwardFunctionBackward", "RegisterPreBackwardFunctionBackward", "_DDPSinkBackward")
)


def _is_torchs_hook(name: str, args: Sequence[Any]) -> bool:
    """Whether a wrapper of torch wants to be told when a gradient arrives; it changes none."""
    hook = args[1] if name == "register_hook" and len(args) > 1 else None
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.")


class Recorder(TorchFunctionMode):
    """Runs a model as it is and writes the tape; with `attached=False` its weights take no part in autograd."""

    def __init__(self, roots: Sequence[Tensor], *, attached: bool, log: list[Logged] | None = None) -> None:
        super().__init__()
        self.tape = Tape()
        self.attached = attached
        self.log = log
        #: Where each value comes from in autograd's graph, for functions that hand values on as they are.
        self._sources: dict[tuple[Node, int], int] = {}
        self._slots: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._numbers: dict[int, int] = {}
        self._versions: list[tuple[Tensor, int]] = []
        self._viewed: dict[int, weakref.ref[Tensor]] = {}
        self._outside: set[Node] = set()
        self._roots = {root.grad_fn for root in roots}
        self._batch = len(roots[0]) if roots[0].dim() else 1
        for root in roots:
            self._bind(root)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.moves((args, kwargs)):
            return function(*args, **kwargs)
        name = name_of(function)
        looks = self.is_look(function, args)
        if looks or name in STEPS or name == "__bool__":
            result = function(*args, **kwargs)
            if self.log is not None and not looks:
                self.log.append(Logged(name, self._described(args, kwargs), None, plain=False, result=result))
            return result
        if not torch.is_grad_enabled():
            raise NotHeldError(f"{name} runs where gradients are switched off.")
        if "input" in kwargs and not args:
            args, kwargs = (kwargs["input"],), {key: value for key, value in kwargs.items() if key != "input"}
        in_place = name.endswith("_") and not name.endswith("__")
        if in_place:
            self._check_in_place(name, args[0])
            name = name[:-1]
        if name in GATES:
            if kwargs.get("inplace") or (len(args) > INPLACE.get(name, len(args)) and args[INPLACE[name]]):
                self._check_in_place(name, args[0])
            call = HeldCall(self, function, args, kwargs)
            return self._logged(name, call, GATES[name](call), plain=False)
        if name not in LINEAR:
            raise NotHeldError(f"{name} is neither a linear function nor a gate.")
        check_linear(name, args, kwargs, self.moves)
        replayed = getattr(Tensor, name) if in_place else function
        call = HeldCall(self, function, args, kwargs)
        result = call.hold(call.run(), replayed, *args, added=LINEAR[name].added, **kwargs)
        return self._logged(name, call, result, plain=True)

    def is_look(self, function: Any, args: Sequence[Any]) -> bool:
        """Whether a call asks what no number answers; one that decides by numbers is a choice."""
        name = name_of(function)
        if name in LOOKS:
            return name != "__bool__"
        if name == "view_as" and not torch.is_grad_enabled():
            return args[0] is args[1]  # by an autograd function that hands its input on: see `slot`
        return (name in SHAPED and not self.moves(args[:1])) or _is_torchs_hook(name, args)

    def moves(self, item: Any) -> bool:
        """Whether anything in it depends on the input."""
        moving = False
        for leaf in leaves(item):
            if isinstance(leaf, Tensor):
                moving |= self.slot(leaf) is not None
        return moving

    def slot(self, tensor: Tensor) -> int | None:
        """The number of a value that depends on the input; None if it does not."""
        known = self._slots.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        node = tensor.grad_fn
        if node is not None and node.name() in HANDED_ON and len(node.next_functions) > tensor.output_nr:
            source = self._sources.get(node.next_functions[tensor.output_nr])  # type: ignore[arg-type]
            if source is not None:
                self._slots[id(tensor)] = (weakref.ref(tensor), source)
                self._sources[node, tensor.output_nr] = source
                return source
        if node is not None and self._leads_here(node):
            raise NotHeldError(f"{type(node).__name__} was not made by a function of torch that can be seen.")
        return None

    def finish(self, outputs: Iterable[Tensor]) -> list[int | None]:
        """The slots of the outputs, after everything that was kept is seen to be as it was."""
        for tensor, version in self._versions:
            if tensor._version != version:  # noqa: SLF001 (as autograd does)
                raise NotHeldError("a tensor was changed in place after it was used.")
        slots = [self.slot(output) for output in outputs]
        self.tape.close(slot for slot in slots if slot is not None)
        return slots

    def _leads_here(self, node: Node) -> bool:
        """Whether a graph comes from the inputs."""
        stack, seen = [node], set()
        while stack:
            current = stack.pop()
            if current in self._roots:
                return True
            if current not in self._outside and current not in seen:
                seen.add(current)
                stack += [following for following, _ in current.next_functions if following is not None]
        self._outside |= seen
        return False

    def _check_in_place(self, name: str, target: Tensor) -> None:
        if self.slot(target) is None:
            raise NotHeldError(f"{name} writes what depends on the input into another tensor.")
        viewed = self._viewed.get(id(target))
        if target._base is not None or (viewed is not None and viewed() is target):  # noqa: SLF001
            raise NotHeldError(f"{name} changes in place a tensor that has views.")

    def _bind(self, value: Tensor) -> int:
        base = value._base  # noqa: SLF001 (no other way to ask)
        if base is not None:
            self._viewed[id(base)] = weakref.ref(base)
        slot = self.tape.n_slots
        self.tape.n_slots += 1
        self.bind(value, slot)
        return slot

    def bind(self, value: Tensor, slot: int) -> None:
        """Know a value by its number."""
        self._slots[id(value)] = (weakref.ref(value), slot)
        if self.log is not None and value.grad_fn is not None:
            self._sources[value.grad_fn, value.output_nr] = slot

    def _logged(self, name: str, call: "HeldCall", result: Any, *, plain: bool) -> Any:
        if self.log is not None:
            described = self._described(call.args, call.kwargs, call._slots)  # noqa: SLF001 (of the same file)
            in_place = result is call.args[0]
            # A plain function is run again; what it gave is not needed.
            kept = None if plain else result
            self.log.append(Logged(name, described, self.tape.entries[-1], plain, kept, in_place))
        return result

    def _described(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], slots: dict[int, int] | None = None
    ) -> tuple[Any, ...]:
        """Call by what they are, in order."""
        described: list[Any] = []
        for leaf in leaves((args, kwargs)):
            if not isinstance(leaf, Tensor):
                described.append(leaf if isinstance(leaf, int | float | str | None) else type(leaf))
                continue
            slot = self.slot(leaf) if slots is None else slots.get(id(leaf))
            number = self._numbers.get(id(leaf))
            if slot is not None:
                described.append(Slot(slot))
            elif leaf.requires_grad and number is not None:
                described.append(Weight(number))
            else:
                described.append(Tensor)
        return tuple(described)

    def _reference(self, tensor: Tensor, slots: dict[int, int]) -> Slot | Weight | Fixed:
        if id(tensor) in slots:
            return Slot(slots[id(tensor)])
        kept = self.tape.weights if tensor.requires_grad else self.tape.fixed
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(kept)
            kept.append(tensor)
            self._versions.append((tensor, tensor._version))  # noqa: SLF001
        return Weight(number) if tensor.requires_grad else Fixed(number)


class HeldCall:
    """One call, with the slots that its arguments had before it ran: it may work in place."""

    def __init__(self, recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.moves = recorder.moves
        self._recorder = recorder
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        found = {id(tensor): recorder.slot(tensor) for tensor in tensors}
        self._slots = {key: slot for key, slot in found.items() if slot is not None}

    def run(self) -> Any:
        if self._recorder.attached:
            return self.function(*self.args, **self.kwargs)
        args, kwargs = mapped((self.args, self.kwargs), self._cut)
        return self.function(*args, **kwargs)

    def hold(
        self, result: Any, function: Callable[..., Any], *args: Any, added: Iterable[Place] = (), **kwargs: Any
    ) -> Any:
        """Write down `function(*args)`, which is linear, as what made the result."""
        recorder = self._recorder

        def reference(leaf: Any) -> Any:
            return recorder._reference(leaf, self._slots) if isinstance(leaf, Tensor) else leaf  # noqa: SLF001

        template, named = mapped((args, kwargs), reference)
        weights = tuple(dict.fromkeys(i.index for i in leaves((template, named)) if isinstance(i, Weight)))
        slots: list[int | None] = []
        edges: list[GradientEdge] = []
        name = name_of(self.function)
        name = name if name.endswith("__") else name.removesuffix("_")
        moving = [leaf for leaf in leaves((self.args, self.kwargs)) if id(leaf) in self._slots]
        recorder.tape.keeps_rows &= keeps_rows(
            name,
            self.args,
            self.kwargs,
            moving,
            results(result),
            recorder._batch,  # noqa: SLF001
        )
        for value in results(result):
            floating = value.is_floating_point() or value.is_complex()
            if floating and not value.requires_grad:
                raise NotHeldError(f"the gradient of {name_of(self.function)} is cut.")
            slots.append(recorder._bind(value) if floating else None)  # noqa: SLF001
            if weights and floating:
                edges.append(get_gradient_edge(value))
                matrices = [w for w in (recorder.tape.weights[i] for i in weights) if w.dim() > 1]
                recorder.tape.work += sum(value.numel() * w[0].numel() for w in matrices)
        entry = TapeEntry(function, template, named, frozenset(added), tuple(slots), weights, tuple(edges))
        recorder.tape.entries.append(entry)
        return result

    def _cut(self, leaf: Any) -> Any:
        trained = isinstance(leaf, Tensor) and leaf.requires_grad and id(leaf) not in self._slots
        return leaf.detach() if trained else leaf


def name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", ""))
    module = getattr(function, "__module__", None) or "torch"
    if module.partition(".")[0] != "torch" or module.startswith("torch._ops"):
        return f"{module}.{name}"
    return str(function.__self__.__name__) if name == "__get__" else name
