"""A region of a model as a problem folder that needs the model no longer.

The reference is what `torch.export` reads of the module's own forward, operation by operation, with parameters and
buffers as inputs, for all sizes that it was called with; it is tried on each of those calls. What the module is beside
that (class, names in the model, arguments that are no tensors) is in `region.json`, for what puts a kernel in place.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ksflow.errors import ConfigError, catch_foreign, one_line
from ksflow.integrate.model.calls import Case, ModuleCall, call_again, meta, record_calls
from ksflow.integrate.model.folder import Folder
from ksflow.integrate.model.graph import export_forward
from ksflow.integrate.model.profile import Region
from ksflow.integrate.model.user_file import UserModel
from ksflow.records import Json

_CONTENTS_OF = 4
"""Modules whose calls' contents are looked at."""


def write(user: UserModel, region: Region, out: Path, profile: Json) -> Path:
    """Write a region's folder below `out`; the folder. What it replaces of its own is replaced, kernels that were added
    to its seeds stay. profile: the model's, as a table. ConfigError where no kernel could take the region's place."""
    if region.why_unfit:
        raise ConfigError(f"{region.modules[0]} {region.why_unfit}: no kernel can take its place; name another region")
    some = region.modules[:_CONTENTS_OF]
    with torch.no_grad(), catch_foreign() as caught:
        calls = record_calls(user.model, (*user.inputs, *user.heldout), keep=some)
        constants = repr(region.calls[0].constants)  # as text NaN is equal to itself
        calls = [call for call in calls if call.module in some and not call.unfit and repr(call.constants) == constants]
        forward = export_forward(user.model.get_submodule(some[0]), [call for call in calls if call.module == some[0]])
        modules = [user.model.get_submodule(call.module) for call in calls]
        pairs = [*zip(modules, calls, strict=True)]
        cases = [replace(case_of(*pair, forward.used), answer=call_again(*pair)) for pair in pairs]
        folder = Folder(user, region, cases, forward)
        folder.expect_same()
    if caught:
        kind = "" if type(caught[0]) is ValueError else f"{type(caught[0]).__name__}: "
        message = one_line(f"{kind}{caught[0]}", 300)
        raise ConfigError(f"{region.modules[0]} is no problem: {message}") from caught[0]
    return folder.write(out, profile)


def case_of(module: torch.nn.Module, call: ModuleCall, used: Sequence[str]) -> Case:
    """A call with those of the module's parameters and buffers that are used."""
    parameters, buffers = (get(remove_duplicate=False) for get in (module.named_parameters, module.named_buffers))
    state = {**dict(parameters), **dict(buffers)}
    held = {name: state[name].detach() for name in used}
    return Case(call, (*call.inputs, *(meta(name, t) for name, t in held.items())), (*call.tensors, *held.values()))
