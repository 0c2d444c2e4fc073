"""`certify`: a proof that a model is homogeneous, or a list of all violations."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import SymBool, SymInt, Tensor, fx, nn
from torch.export.graph_signature import ConstantArgument
from torch.utils import _pytree as pytree

from axiograd._calls import Leaf, Leaves, read_leaves, scalable
from axiograd._state import (
    TRACE_LOCK,
    all_tensors,
    attributes_restored,
    describe_mode,
    describe_model,
    draws_noticed,
    preserved_buffers,
    require_shapes,
    runnable,
    unwrap,
    why_it_fails,
    with_buffers,
)
from axiograd._typing import Inputs
from axiograd.homogeneity.certificate import Certificate, Violation
from axiograd.homogeneity.cuts import cut_name, gradient_cuts
from axiograd.homogeneity.degrees import KnownConstant, Value, number, of_degree, same
from axiograd.homogeneity.findings import Findings
from axiograd.homogeneity.nodes import ancestors, locate_error
from axiograd.homogeneity.program import Program, trace
from axiograd.homogeneity.rules.call import LIFT_FIX
from axiograd.homogeneity.sizes import Sizes
from axiograd.homogeneity.verification import (
    Probe,
    contradiction,
    epsilon_error,
    quiet_and_eager,
    tensors_of,
    wrong_gradient,
)
from axiograd.homogeneity.walk import Walk, not_piecewise_linear

FINITE = "values stay finite, no hook changes a gradient, and rules added by hand are right"
#: Rows that the running model is probed on where the program holds for any number of them.
ROWS = 2


def certify(
    model: Callable[..., Any],
    example_inputs: Inputs,
    *,
    baseline: Any = None,
    additional_forward_args: Any = None,
    wrt: int | str | Iterable[int | str] | None = None,
) -> Certificate:
    """Prove F(αx) = αᵏF(x) for every α > 0, operator by operator, or list every violation.

    Every call proves anew, and spot-checks the proof numerically on at most two samples (`axiograd.verify` does that
    alone). The model's state does not change.

    Floating-point inputs scale together, or those named in `wrt`; everything else is constant.
    With `baseline=b`, F is certified as a homogeneous function of x − b.

    >>> import torch, axiograd.homogeneity as h
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> certificate = h.certify(model, torch.ones(3, 4))
    >>> certificate.ok, certificate.violations[0].module, certificate.violations[0].parameters
    (False, '2', ('2.bias',))
    >>> h.certify(lambda x: x * x.norm(), torch.ones(3)).degree
    2.0
    """
    arguments = read_leaves(example_inputs, additional_forward_args=additional_forward_args, wrt=wrt, baseline=baseline)
    return prove(model, arguments, probe=True).certificate


@dataclass(frozen=True)
class Proof:
    """A certificate with what it depends on besides the program: numbers that were looked at, and sizes."""

    certificate: Certificate
    #: Constants whose numbers decided, by name: a bias that is zero, an exponent.
    consulted: dict[str, Tensor]
    sizes: Sizes | None


def prove(model: Callable[..., Any], arguments: Leaves, *, axes: tuple[int, ...] = (0,), probe: bool = False) -> Proof:
    """Trace and walk, for any size along `axes` where that can be; with `probe`, spot-check as well.

    The running model is asked in two cases without `probe`, too: gradients that the trace does not show are compared
    with differences, and how far epsilons lead away is measured.
    """
    wrapped = runnable(model)
    model = unwrap(wrapped)
    require_shapes(model)
    findings = Findings()
    consulted: dict[str, Tensor] = {}
    shifted = any(leaf.baseline is not None for leaf in arguments.leaves)
    # Held until the end: while a model is traced, its attributes are not its own.
    with TRACE_LOCK, attributes_restored(model):
        with draws_noticed() as drawn:
            first = _first_run(model, arguments)
            program = _traced(model, arguments, findings, axes=() if shifted else axes)
        for generator in drawn:
            findings.add(_draws(generator))
        outputs, visits = ([], 0) if program is None else _walk(program, arguments, findings, consulted)
        degrees = tuple(_degree_of(value) for value, _ in outputs)
        floating = [d for d, (_, is_floating) in zip(degrees, outputs, strict=True) if is_floating]
        degree = None if program is None else _verdict(floating, findings)
        exact = all(value.exact for value, _ in outputs) and bool(outputs)
        curved = _curved(outputs, findings)
        error = None
        if program is not None and degree is not None and not findings.violations:
            runs = model if isinstance(wrapped, nn.parallel.DistributedDataParallel) else wrapped
            error = _ask_the_model(
                runs, program, arguments, degree, findings, exact=exact, hidden=first.hidden, probe=probe
            )
        trained = _trained(findings.exponents, program, first.leaves)
    findings.assume(FINITE)
    certificate = Certificate(
        ok=degree is not None and not findings.violations,
        degree=degree,
        degrees=degrees,
        exact=exact,
        violations=findings.violations,
        epsilons=findings.epsilons,
        assumptions=findings.assumptions,
        model=describe_model(model),
        mode=describe_mode(model),
        inputs=tuple(leaf.describe() for leaf in arguments.leaves),
        dynamic=() if program is None else program.sizes.describe(),
        baseline=shifted,
        piecewise_linear=program is not None and not curved,
        not_piecewise_linear=curved,
        error=error,
        trained_degree=trained,
        nodes=visits,
    )
    return Proof(certificate, consulted, None if program is None else program.sizes)


@dataclass(frozen=True)
class _FirstRun:
    """What a trace does not show and a run with gradients does."""

    #: The user's own autograd.Functions, and inference mode.
    hidden: tuple[type, ...]
    #: Where the tensors lie that a gradient of the outputs would be collected in.
    leaves: frozenset[int]


def _first_run(model: Callable[..., Any], arguments: Leaves) -> _FirstRun:
    """Run the model once, with gradients where it can be.

    What it keeps between calls (lru_cache, globals) is filled with numbers, before a trace would without them.
    """
    errors: list[Exception] = []
    for call, grad in ((_differentiable, torch.enable_grad), (Leaves.copies, torch.no_grad)):
        with (
            torch.inference_mode(mode=False),
            grad(),
            torch.random.fork_rng(),
            quiet_and_eager(),
            preserved_buffers(with_buffers(model)),
            _inference_mode_noticed() as entered,
        ):
            try:
                args, kwargs = call(arguments)
                steps = list(_steps(model(*args, **kwargs)))
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises
                errors.append(error)
                continue  # without gradients it may run: NumPy, inference tensors
        own = [
            getattr(s, "_forward_cls", type(s))
            for s in steps
            if isinstance(s, torch.autograd.function.BackwardCFunction)
        ]
        hidden = dict.fromkeys([f for f in own if not f.__module__.startswith("torch.")] + entered)
        return _FirstRun(tuple(hidden), frozenset(s.variable.data_ptr() for s in steps if hasattr(s, "variable")))
    scaled = [leaf.value for leaf in arguments.leaves if leaf.scales]
    raise why_it_fails(model, scaled, errors[-1]) from errors[-1]


def _differentiable(arguments: Leaves) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call on copies with gradients, none of them a leaf, so that a model may work in place."""
    pairs = zip(arguments.leaves, pytree.tree_leaves(arguments.copies()), strict=True)
    return arguments.rebuild([value.requires_grad_() * 1 if leaf.scales else value for leaf, value in pairs])


def _steps(output: Any) -> Iterator[Any]:
    """All steps of the backward pass."""
    waiting = [t.grad_fn for t in tensors_of(output)]
    seen: set[Any] = set()
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            yield step
            waiting += [before for before, _ in step.next_functions]


@contextmanager
def _inference_mode_noticed() -> Iterator[list[type]]:
    """Whether inference mode was entered, of which a trace shows nothing."""
    entered: list[type] = []
    mode: Any = torch.inference_mode
    enter = mode.__enter__

    def noticed(self: Any) -> None:
        entered.extend([mode] if self.mode else [])
        enter(self)

    mode.__enter__ = noticed
    try:
        yield entered
    finally:
        mode.__enter__ = enter


def _traced(
    model: Callable[..., Any], arguments: Leaves, findings: Findings, *, axes: tuple[int, ...]
) -> Program | None:
    """The program, or None with a violation for what the export cannot follow, control flow most often."""
    try:
        program = trace(model, arguments, axes=axes)
    except Exception as error:  # noqa: BLE001 - whatever the export says becomes a violation or a clear error
        place = locate_error(error)
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        findings.add(
            Violation(
                module=place.module,
                op="export",
                source=place.source,
                code=place.code,
                reason=f"torch.export cannot follow the model here ({type(error).__name__}: {line[:200]}).",
                fix="Replace control flow that depends on values by torch.where, and calls that leave PyTorch by "
                "operators.",
                kind="export",
            )
        )
        return None
    if any(isinstance(held, torch.Generator) for held in program.objects.values()):
        findings.add(_draws("torch.Generator"))
    return program


def _draws(generator: str) -> Violation:
    return Violation(
        module="",
        op=generator,
        source="",
        reason=f"The model draws from {generator}, so it is a different function at every call.",
        fix="Draw from torch's default generator, whose draws are held fixed, or pass what was drawn as an argument.",
        kind="random",
    )


def _walk(
    program: Program, arguments: Leaves, findings: Findings, consulted: dict[str, Tensor]
) -> tuple[list[tuple[Value, bool]], int]:
    """What is known about each output, whether it is floating-point, and how many nodes were visited."""
    walk = Walk(program.graph_module, findings)
    graph = program.graph_module.graph
    nodes = {node.name: node for node in graph.nodes}
    scaling = {name for name, i in program.inputs.items() if arguments.leaves[i].scales}
    for cut in gradient_cuts(program.original, scaling):
        findings.violation(
            cut,
            op=cut_name(cut),
            reason=(
                "The gradient of a value that depends on the input is cut (detach, item, no_grad, an operator that "
                "autograd has no derivative of), so that autograd's ∇F need not be that of F."
            ),
            fix="Leave the value attached, compute it from constants, or write it with PyTorch's operators.",
            kind="gradient",
        )
    for name in program.objects:
        walk.environment[nodes[name]] = name
    for name, (title, tensor) in program.constants.items():
        walk.environment[nodes[name]] = _constant(title, tensor, consulted)
    for name, index in program.inputs.items():
        walk.environment[nodes[name]] = _input(arguments.leaves[index])
    needed = ancestors(nodes[o] for o in program.outputs if isinstance(o, str))
    walk.run(node for node in graph.nodes if node in needed)
    return [_output(o, nodes, walk) for o in program.outputs], walk.visits


def _constant(name: str, tensor: Any, consulted: dict[str, Tensor]) -> Value:
    def consult() -> Any:
        if isinstance(tensor, Tensor):
            consulted[name] = tensor
        return tensor

    return Value(degree=0.0, constant=KnownConstant(consult, (name,)))


def _input(leaf: Leaf) -> Value:
    if not isinstance(leaf.value, Tensor):
        return number(leaf.value) if isinstance(leaf.value, int | float | complex) else of_degree(0)
    if not leaf.scales:
        return of_degree(0)
    return Value(degree=1.0, offset=leaf.baseline, moves=True)


def _output(output: str | ConstantArgument, nodes: dict[str, fx.Node], walk: Walk) -> tuple[Value, bool]:
    if isinstance(output, ConstantArgument):
        value = output.value
        return (number(value) if isinstance(value, int | float) else of_degree(0)), False
    node = nodes[output]
    value = walk.environment[node]
    meta = node.meta.get("val")
    if isinstance(value, Value) and value.offset is not None:
        walk.report.violation(
            node,
            op="output",
            reason="The baseline is still in the output.",
            fix="Subtract the baseline from the input first: x − b must be what the network sees.",
            kind="constant",
        )
    return value, scalable(meta) or not isinstance(meta, Tensor | int | SymInt | SymBool)


def _degree_of(value: Value) -> float | None:
    if value.unknown or not value.sound or value.offset is not None:
        return None
    return float("inf") if value.is_zero() else value.degree


def _verdict(degrees: list[float | None], findings: Findings) -> float | None:
    """The one degree of all outputs; refused below 1."""

    def refuse(reason: str, fix: str) -> None:
        findings.add(Violation(module="", op="output", source="", reason=reason, fix=fix, kind="output"))

    if None in degrees:
        if not findings.violations:
            refuse("Nothing is known about an output.", LIFT_FIX)
        return None
    if not degrees:
        refuse("The model returns no floating-point tensor.", "Return the logits.")
        return None
    known = [d for d in degrees if d is not None and d != float("inf")]
    degree = known[0] if known else 1.0
    if not all(same(d, degree) for d in known):
        listed = " and ".join(f"{d:g}" for d in sorted(set(known)))
        refuse(
            f"The outputs have degrees {listed}; attribution needs one.",
            "Attribute to one output at a time: wrap the model so that it returns that output.",
        )
        return None
    if degree < 1 and not same(degree, 1):
        constant = same(degree, 0)
        why = "the output does not change with the scale of the input" if constant else "its gradient blows up at 0"
        refuse(
            f"The output has degree {degree:g}, below 1: {why}, and Integrated Gradients has no closed form there.",
            f"Take out the last normalisation or squashing, or use a scale-keeping one. {LIFT_FIX}",
        )
    return degree


def _curved(outputs: list[tuple[Value, bool]], findings: Findings) -> tuple[Violation, ...]:
    """What keeps the model from being piecewise linear with the gradient that autograd has of it."""
    unseen = tuple(v for v in findings.violations if v.kind in {"export", "random", "gradient"})
    return unseen or not_piecewise_linear(value for value, _ in outputs)


def _trained(names: set[str], program: Program | None, leaves: frozenset[int]) -> tuple[str, ...]:
    """Which of some constants are trained; those that a function closes over lose their mark in the export."""
    constants = dict(() if program is None else program.constants.values())
    found = {name: constants[name] for name in sorted(names) if isinstance(constants.get(name), Tensor)}
    return tuple(name for name, t in found.items() if t.requires_grad or (t.data_ptr() in leaves and t.numel()))


def _ask_the_model(
    model: Callable[..., Any],
    program: Program,
    arguments: Leaves,
    degree: float,
    findings: Findings,
    *,
    exact: bool,
    hidden: tuple[type, ...],
    probe: bool,
) -> float | None:
    """Add what the running model says against the proof; returns how far an inexact one is off."""
    if exact and not hidden and not probe:
        return 0.0
    tensors = all_tensors(model) + [leaf.value for leaf in arguments.leaves if isinstance(leaf.value, Tensor)]
    if any(t.is_meta for t in tensors):
        findings.assume("tensors on the meta device have no numbers, so nothing was run")
        return None
    with torch.inference_mode(mode=False), quiet_and_eager():
        example = _example(model, arguments, program)
        if hidden:
            _check_hidden(example, hidden, findings)
        if probe and not findings.violations:
            found = contradiction(example, degree, exact=exact)
            if found is not None:
                findings.add(_refuted(*found))
        if exact or findings.violations:
            return 0.0 if exact else None
        return epsilon_error(example, degree)


def _example(model: Callable[..., Any], arguments: Leaves, program: Program) -> Probe:
    """The model at the example, with the first samples of it where the proof holds for any number of them."""
    leaves = tuple(
        replace(leaf, value=leaf.value[:ROWS], baseline=None if leaf.baseline is None else leaf.baseline[:ROWS])
        if isinstance(leaf.value, Tensor) and leaf.value.dim()
        else leaf
        for leaf in arguments.leaves
    )
    if program.sizes.cover([tuple(e.value.shape) if isinstance(e.value, Tensor) else None for e in leaves]):
        arguments = replace(arguments, leaves=leaves)
    return Probe(model, arguments, precision=program.precision)


def _check_hidden(example: Probe, hidden: tuple[type, ...], findings: Findings) -> None:
    """Gradients that the trace does not show, of the user's own functions or cut by inference mode, by differences."""
    names = ", ".join(function.__name__ for function in hidden)
    wrong = wrong_gradient(example)
    if wrong is None:
        findings.assume(f"the gradient of {names} is right, as it was at a few points")
        return
    findings.add(
        Violation(
            module="",
            op=names,
            source=_line_of(hidden[0]),
            reason=f"The gradient of {names} is not that of its forward pass: {wrong}.",
            fix="Correct its backward, or write it with PyTorch's operators, outside of inference mode.",
            kind="gradient",
        )
    )


def _line_of(function: type) -> str:
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):  # written at a prompt
        return ""


def _refuted(law: str, reason: str) -> Violation:
    return Violation(
        module="",
        op=law,
        source="",
        reason=f"Refuted. {reason}",
        fix="The proof is about what torch.export traced. Look for code that behaves differently when it is traced "
        "(torch.compiler.is_compiling, is_exporting, type(x) is Tensor), for hooks, and for rules added by hand.",
        kind="refuted",
    )
