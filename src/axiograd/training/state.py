"""The tensors of a run, by name: weights and buffers, and what the optimizer remembers of each parameter."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import StorageError
from axiograd.training.checkpoint import Tensors


def model_tensors(module: nn.Module) -> Tensors:
    """Weights and buffers on the CPU, whole even where the strategy shards them (all ranks call, rank 0 gets them)."""
    if is_sharded(module):
        from torch.distributed.checkpoint import state_dict as sharded

        options = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
        return dict(_tensors_only(sharded.get_model_state_dict(module, options=options)))
    # a copy: tied weights share memory, which safetensors refuses
    return {name: tensor.detach().cpu().clone() for name, tensor in _tensors_only(module.state_dict()).items()}


def load_model(module: nn.Module, tensors: Tensors) -> None:
    """Put weights and buffers into the module; the names must match exactly."""
    try:
        if is_sharded(module):
            from torch.distributed.checkpoint import state_dict as sharded

            options = sharded.StateDictOptions(full_state_dict=True)
            sharded.set_model_state_dict(module, dict(tensors), options=options)
        else:
            module.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"the checkpoint does not fit the model: {error}") from error


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """`{"parameter|what": tensor}` of everything that the optimizer remembers."""
    if is_sharded(module):
        from torch.distributed.checkpoint import state_dict as sharded

        options = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole: dict[str, Any] = sharded.get_optimizer_state_dict(module, optimizer, options=options)
        remembered = whole.get("state", {})  # all of it on rank 0, nothing elsewhere
    else:
        names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
        remembered = {names[parameter]: values for parameter, values in optimizer.state.items()}
    return {
        f"{name}|{what}": torch.as_tensor(value).detach().cpu().clone()
        for name, values in remembered.items()
        for what, value in values.items()
        if value is not None
    }


def load_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give the optimizer its memory back."""
    remembered: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("|")
        remembered.setdefault(name, {})[what] = tensor
    names = {parameter: name for name, parameter in module.named_parameters()}
    if is_sharded(module):
        from torch.distributed.checkpoint import state_dict as sharded

        options = sharded.StateDictOptions(full_state_dict=True)
        current: dict[str, Any] = sharded.get_optimizer_state_dict(module, optimizer, options=options)
        whole = {"state": remembered, "param_groups": current["param_groups"]}
        sharded.set_optimizer_state_dict(module, optimizer, whole, options=options)
        return
    unknown = remembered.keys() - set(names.values())
    if unknown:
        raise StorageError(f"the checkpoint's optimizer knows parameters the model has not: {sorted(unknown)}")
    # through load_state_dict, which puts each tensor on the device and in the dtype that the optimizer wants
    flat = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    whole = optimizer.state_dict()
    whole["state"] = {i: remembered[names[p]] for i, p in enumerate(flat) if names[p] in remembered}
    optimizer.load_state_dict(whole)


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters are cut into pieces that live on different ranks (FSDP)."""
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        return True
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(part, FullyShardedDataParallel) for part in module.modules())


def _tensors_only(state: Mapping[str, Any]) -> dict[str, Tensor]:
    strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strange:
        raise StorageError(
            f"the model's state_dict has entries that are not tensors ({', '.join(strange)}): they cannot be "
            "stored without pickling code; keep them as buffers"
        )
    return dict(state)
