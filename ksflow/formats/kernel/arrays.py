"""Tensors of a call as NumPy arrays, and arrays as tensors: for references in NumPy, and for what is timed of them."""

from typing import Any

import numpy as np
import torch


def as_arrays(tree: Any) -> Any:
    """The tree with arrays where tensors were, over the same memory on a CPU."""
    if isinstance(tree, torch.Tensor):
        return tree.cpu().numpy()
    if isinstance(tree, dict):
        return {name: as_arrays(value) for name, value in tree.items()}
    return type(tree)(map(as_arrays, tree)) if type(tree) in (list, tuple) else tree


def as_tensors(tree: Any) -> Any:
    """The tree with tensors where arrays and NumPy's numbers were, over the same memory where torch can have it."""
    if isinstance(tree, np.ndarray | np.generic):
        array = np.asarray(tree)
        usable = array.flags.writeable and all(step >= 0 for step in array.strides)
        return torch.from_numpy(array if usable else array.copy())
    if isinstance(tree, dict):
        return {name: as_tensors(value) for name, value in tree.items()}
    return type(tree)(map(as_tensors, tree)) if type(tree) in (list, tuple) else tree
