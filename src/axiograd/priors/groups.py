"""Feature groups that should add nothing in total."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors._masks import as_tensor, require_finite
from axiograd.priors._ops import rows
from axiograd.priors.base import Prior

#: Indices into the flattened features per group, or a membership tensor [n_groups, *features].
Membership: TypeAlias = Sequence[Sequence[int]] | Tensor


class Groups(Prior):
    """The total attribution of each feature group, mean over samples.

    Ω = (1/m)·Σₛ Σ_g |Σ_{i∈g} aₛᵢ|ᵖ with p = `power`.

    By completeness a group's sum is what it adds to the output, so this does the job that CDEP does by
    contextual decomposition. `Groups(groups)` has the same groups for all samples; without them, or to
    override them, pass `groups` [batch, n_groups, *features] in the call.

    Rieger et al.: Interpretations are useful: penalizing explanations to align neural networks, 2020.

    >>> import torch
    >>> Groups([[0, 1], [2]])(torch.tensor([[2.0, -1.0, 3.0]]))
    tensor(10.)
    >>> Groups()(torch.tensor([[2.0, -1.0]]), groups=torch.tensor([[[True, True]]]))
    tensor(1.)
    """

    membership: Tensor | None

    def __init__(self, groups: Membership | None = None, *, power: Literal[1, 2] = 2) -> None:
        super().__init__()
        if power not in {1, 2}:
            raise ConfigurationError(f"Groups' power must be 1 or 2, got {power}.")
        self.power = power
        self.register_buffer("membership", None)
        self.indices: list[list[int]] | None = None
        if isinstance(groups, Tensor):
            self.membership = groups.detach().clone()
        elif groups is not None:
            self.indices = [[int(index) for index in group] for group in groups]

    def forward(self, attributions: Tensor, *, groups: Tensor | None = None) -> Tensor:
        features = rows(attributions)
        members = self._members(features) if groups is None else as_tensor(groups, "groups").to(features)
        if groups is None:
            members = members.reshape(1, len(members), -1)
        elif len(members) == len(features) and members.ndim > 2:  # noqa: PLR2004 (batch, group, feature)
            members = members.flatten(2)
        if members.ndim != 3 or members.shape[-1] != features.shape[1]:  # noqa: PLR2004
            raise ConfigurationError(
                f"groups of shape {list(members.shape)} do not fit attributions of shape {list(attributions.shape)}; "
                "give [n_groups, *features] to Groups or [batch, n_groups, *features] in the call."
            )
        require_finite(members[0] if groups is None else members, "groups")
        sums = features @ members[0].T if groups is None else torch.einsum("bgf,bf->bg", members, features)
        return (sums.abs() if self.power == 1 else sums.square()).sum(1).mean()

    def _members(self, features: Tensor) -> Tensor:
        if self.membership is not None:
            return self.membership.to(features)
        if self.indices is None:
            raise ConfigurationError("prior Groups needs the argument 'groups', or Groups(groups).")
        n = features.shape[1]
        pairs = [(g, index) for g, group in enumerate(self.indices) for index in group]
        wrong = [index for _, index in pairs if not -n <= index < n]
        if wrong:
            raise ConfigurationError(f"Groups has feature indices {wrong[:5]}, attributions have {n} features.")
        members = features.new_zeros(len(self.indices), n)
        if pairs:
            group_of, feature_of = torch.tensor(pairs, device=features.device).unbind(1)
            members = members.index_put((group_of, feature_of), features.new_ones(()))
        return members
