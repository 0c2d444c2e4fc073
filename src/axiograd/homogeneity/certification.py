"""`certify`: a proof that a model is homogeneous, or everything that stands in its way."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymInt, Tensor, fx, nn
from torch.export.graph_signature import ConstantArgument

from axiograd._calls import Leaf, Leaves, read_leaves
from axiograd._state import (
    TRACE_LOCK,
    all_tensors,
    describe_mode,
    describe_model,
    preserved_buffers,
    require_shapes,
    runnable,
    unwrap,
    with_buffers,
)
from axiograd._typing import Inputs
from axiograd.homogeneity.certificate import Certificate, Violation
from axiograd.homogeneity.degrees import KnownConstant, Value, number, of_degree, same
from axiograd.homogeneity.findings import Findings
from axiograd.homogeneity.probe import ModelProbe, require_numbers, tensors_of
from axiograd.homogeneity.refutation import attempt, epsilon_error, example_probe, quiet_and_eager, wrong_gradient
from axiograd.homogeneity.rules.call import LIFT_FIX
from axiograd.homogeneity.tracing.cuts import ancestors, cut_name, gradient_cuts
from axiograd.homogeneity.tracing.failure import explain_failure, fails_itself
from axiograd.homogeneity.tracing.program import Program, trace
from axiograd.homogeneity.tracing.sizes import Sizes
from axiograd.homogeneity.tracing.surroundings import attributes_restored, draws_noticed, own_generator, randomness
from axiograd.homogeneity.walk import Walk, not_piecewise_linear

FINITE = "values stay finite, no hook changes a gradient, and rules added by hand are right"


def certify(
    model: Callable[..., Any],
    example_inputs: Inputs,
    *,
    baseline: Any = None,
    additional_forward_args: Any = None,
    wrt: int | str | Iterable[int | str] | None = None,
) -> Certificate:
    """Prove F(αx) = αᵏF(x) for every α > 0, operator by operator, or list every violation.

    Every call proves anew, and tries to refute the proof by running the model itself on at most two samples
    (`axiograd.verify` does that alone). The model is left as it was.

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
    """Trace and walk, for any size along `axes` where that can be; with `probe`, try to refute as well.

    The running model is asked in two cases without `probe`, too: gradients written by hand are compared with
    differences, and how far epsilons lead away is measured.
    """
    wrapped = runnable(model)
    model = unwrap(wrapped)
    require_shapes(model)
    report = Findings()
    shifted = any(leaf.baseline is not None for leaf in arguments.leaves)
    consulted: dict[str, Tensor] = {}
    outputs: list[tuple[Value, bool]] = []
    visits, error = 0, None
    program: Program | None = None
    # Held until the end: while a model is traced, its attributes are not its own.
    with TRACE_LOCK, attributes_restored(model):
        with draws_noticed() as drawn:
            trouble, by_hand = _run_once(model, arguments)
            try:
                program = trace(model, arguments, static=shifted, axes=axes)
            except Exception as failure:  # noqa: BLE001 - whatever the export says becomes a violation or a clear error
                if trouble is not None:
                    raise fails_itself(trouble) from trouble
                report.add(explain_failure(failure))
        for generator in drawn:
            report.add(randomness(generator))
        if program is not None:
            if any(isinstance(o, torch.Generator) for o in program.objects.values()):
                report.add(own_generator())
            interpreter = Walk(program.graph_module, report)
            outputs = _walk(program, arguments, interpreter, consulted)
            visits = interpreter.visits
        degrees = tuple(_degree_of(value) for value, _ in outputs)
        floating = [d for d, (_, is_floating) in zip(degrees, outputs, strict=True) if is_floating]
        degree = _verdict(floating, report, traced=bool(outputs))
        exact = all(value.exact for value, _ in outputs) and bool(outputs)
        curved = _curved(outputs, report)
        if program is not None and degree is not None and not report.violations:
            error = 0.0
            if by_hand or probe or not exact:
                error = _ask_the_model(
                    wrapped, model, program, arguments, degree, report, exact=exact, by_hand=by_hand, probe=probe
                )
    report.assume(FINITE)
    certificate = Certificate(
        ok=degree is not None and not report.violations,
        degree=degree,
        degrees=degrees,
        exact=exact,
        violations=report.violations,
        epsilons=report.epsilons,
        assumptions=report.assumptions,
        model=describe_model(model),
        mode=describe_mode(model),
        inputs=tuple(leaf.describe() for leaf in arguments.leaves),
        dynamic=() if program is None else program.sizes.describe(),
        baseline=shifted,
        piecewise_linear=program is not None and not curved,
        not_piecewise_linear=curved,
        error=error,
        trained_degree=_trained(report.exponents, program, model, arguments),
        nodes=visits,
    )
    return Proof(certificate, consulted, None if program is None else program.sizes)


def _ask_the_model(
    wrapped: Callable[..., Any],
    model: Callable[..., Any],
    program: Program,
    arguments: Leaves,
    degree: float,
    report: Findings,
    *,
    exact: bool,
    by_hand: list[type],
    probe: bool,
) -> float | None:
    """Add what the model itself says against the proof; returns how far an inexact one is off."""
    tensors = all_tensors(model) + [leaf.value for leaf in arguments.leaves if isinstance(leaf.value, Tensor)]
    if any(t.is_meta or (not t.numel() and t.dim() == 0) for t in tensors):
        report.assume("tensors on the meta device have no numbers, so nothing was run")
        return None
    runs = model if isinstance(wrapped, nn.parallel.DistributedDataParallel) else wrapped
    with torch.inference_mode(mode=False), quiet_and_eager():
        example = example_probe(runs, arguments, program)
        found = wrong_gradient(model, example, by_hand) if by_hand else None
        if found is None and probe:
            found = attempt(model, example, degree, exact=exact)
        if found is not None:
            report.add(found)
        elif by_hand:
            names = ", ".join(function.__name__ for function in by_hand)
            report.assume(f"the gradient of {names} is right, as it was at a few points")
        return 0.0 if exact else epsilon_error(example, degree) if found is None else None


def _run_once(model: Callable[..., Any], arguments: Leaves) -> tuple[Exception | None, list[type]]:
    """What goes wrong when the model runs, and the `autograd.Function`s of the user's own that it applies.

    What the model keeps between calls (lru_cache, globals) is filled with numbers, before a trace would without them.
    """
    trouble: Exception | None = None
    for call, grad in ((_differentiable, torch.enable_grad), (Leaves.copies, torch.no_grad)):
        with (
            torch.inference_mode(mode=False),
            grad(),
            torch.random.fork_rng(),
            quiet_and_eager(),
            preserved_buffers(with_buffers(model)),
        ):
            try:
                args, kwargs = call(arguments)
                output = model(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises
                trouble = error
                continue  # without gradients it may run: NumPy, inference tensors
        require_numbers(output)
        return None, _written_by_hand(output)
    return trouble, []


def _differentiable(arguments: Leaves) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call on copies with gradients, none of them a leaf, so that a model may work in place."""
    values = [
        leaf.value.detach().clone() if isinstance(leaf.value, Tensor) else leaf.value for leaf in arguments.leaves
    ]
    return arguments.rebuild(
        [
            value.requires_grad_() * 1 if leaf.scales else value
            for leaf, value in zip(arguments.leaves, values, strict=True)
        ]
    )


def _written_by_hand(output: Any) -> list[type]:
    """The `autograd.Function`s in a backward pass that do not come with torch."""
    steps = (step for step in _steps(output) if isinstance(step, torch.autograd.function.BackwardCFunction))
    functions = {getattr(step, "_forward_cls", type(step)): None for step in steps}
    return [function for function in functions if not function.__module__.startswith("torch.")]


def _steps(output: Any) -> Iterator[Any]:
    """All steps of the backward pass."""
    waiting = [t.grad_fn for t in tensors_of(output)]
    seen: set[Any] = set()
    while waiting:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        yield step
        waiting += [before for before, _ in step.next_functions]


def _trained(names: set[str], program: Program | None, model: Callable[..., Any], arguments: Leaves) -> tuple[str, ...]:
    """Which of some constants are trained; those that a function closes over lose their mark in the export."""
    constants = dict(() if program is None else program.constants.values())
    found = {name: constants[name] for name in sorted(names) if isinstance(constants.get(name), Tensor)}
    if all(t.requires_grad or isinstance(t, nn.Parameter) for t in found.values()):
        return tuple(name for name, t in found.items() if t.requires_grad)
    places = {t.data_ptr() for t in _leaves_behind(model, arguments)}
    return tuple(name for name, t in found.items() if t.requires_grad or t.data_ptr() in places)


def _leaves_behind(model: Callable[..., Any], arguments: Leaves) -> Iterator[Tensor]:
    """The tensors that a gradient of the model's outputs would be collected in."""
    with torch.inference_mode(mode=False), torch.enable_grad(), quiet_and_eager():
        probe = ModelProbe(model, arguments)
        output = probe.raw(probe.directions())
    yield from (step.variable for step in _steps(output) if hasattr(step, "variable"))


def _curved(outputs: list[tuple[Value, bool]], report: Findings) -> tuple[Violation, ...]:
    """What keeps the model from being piecewise linear with the gradient that autograd has of it."""
    unseen = tuple(v for v in report.violations if v.kind in {"export", "random", "gradient"})
    return unseen or not_piecewise_linear(value for value, _ in outputs)


def _walk(
    program: Program, arguments: Leaves, interpreter: Walk, consulted: dict[str, Tensor]
) -> list[tuple[Value, bool]]:
    graph = program.graph_module.graph
    nodes = {node.name: node for node in graph.nodes}
    scaling = {name for name, i in program.inputs.items() if arguments.leaves[i].scales}
    for cut in gradient_cuts(program.original, scaling):
        interpreter.report.violation(
            cut,
            op=cut_name(cut),
            reason=(
                "The gradient of a value that depends on the input is cut (detach, item, no_grad, inference mode, "
                "an operator that autograd has no derivative of), so that autograd's ∇F need not be that of F."
            ),
            fix="Leave the value attached, compute it from constants, or write it with PyTorch's operators.",
            kind="gradient",
        )
    for name in program.objects:
        interpreter.environment[nodes[name]] = name
    for name, (title, tensor) in program.constants.items():
        interpreter.environment[nodes[name]] = _constant(title, tensor, consulted)
    for name, index in program.inputs.items():
        interpreter.environment[nodes[name]] = _input(arguments.leaves[index])
    targets = [nodes[o] for o in program.outputs if isinstance(o, str)]
    needed = ancestors(targets)
    interpreter.run(node for node in graph.nodes if node in needed)
    return [_output(o, nodes, interpreter) for o in program.outputs]


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


def _output(output: str | ConstantArgument, nodes: dict[str, fx.Node], interpreter: Walk) -> tuple[Value, bool]:
    if isinstance(output, ConstantArgument):
        value = output.value
        return (number(value) if isinstance(value, int | float) else of_degree(0)), False
    node = nodes[output]
    value = interpreter.environment[node]
    meta = node.meta.get("val")
    is_floating = isinstance(meta, Tensor) and (meta.is_floating_point() or meta.is_complex())
    if isinstance(value, Value) and value.offset is not None:
        interpreter.report.violation(
            node,
            op="output",
            reason="The baseline is still in the output.",
            fix="Subtract the baseline from the input first: x − b must be what the network sees.",
            kind="constant",
        )
    return value, is_floating or not isinstance(meta, Tensor | int | SymInt | SymBool)


def _degree_of(value: Value) -> float | None:
    if value.unknown or not value.sound or value.offset is not None:
        return None
    return float("inf") if value.is_zero() else value.degree


def _verdict(degrees: list[float | None], report: Findings, *, traced: bool) -> float | None:
    """The one degree of all outputs; refused below 1."""
    known = [d for d in degrees if d is not None and d != float("inf")]
    if len(known) < len([d for d in degrees if d != float("inf")]):
        if not report.violations:
            _refuse(report, "Nothing is known about an output.", LIFT_FIX)
        return None
    if traced and not degrees:
        _refuse(report, "The model returns no floating-point tensor.", "Return the logits.")
    if not degrees:
        return None
    degree = known[0] if known else 1.0
    if not all(same(d, degree) for d in known):
        listed = " and ".join(f"{d:g}" for d in sorted(set(known)))
        _refuse(
            report,
            f"The outputs have degrees {listed}; attribution needs one.",
            "Attribute to one output at a time: wrap the model so that it returns that output.",
        )
        return None
    if degree < 1 and not same(degree, 1):
        why = (
            "the output does not change with the scale of the input"
            if same(degree, 0)
            else "its gradient blows up at 0"
        )
        _refuse(
            report,
            f"The output has degree {degree:g}, below 1: {why}, and Integrated Gradients has no closed form there.",
            f"Take out the last normalisation or squashing, or use a scale-keeping one. {LIFT_FIX}",
        )
    return degree


def _refuse(report: Findings, reason: str, fix: str) -> None:
    report.add(Violation(module="", op="output", source="", reason=reason, fix=fix, kind="output"))
