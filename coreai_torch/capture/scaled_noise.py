"""Replace random numbers that the program multiplies by 0.

Speech models draw noise and scale it by an attribute (`noise_scale` of VITS). With a scale of 0 the
results are not random, and zeros in place of the noise give the same ones.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ..torch_compat import aten

_ZEROS = {
    aten.rand.default: aten.zeros.default,
    aten.randn.default: aten.zeros.default,
    aten.rand_like.default: aten.zeros_like.default,
    aten.randn_like.default: aten.zeros_like.default,
}
_PRODUCTS = (aten.mul.Tensor, aten.mul.Scalar)
_COPIES = (aten.to, aten._to_copy, aten.alias, aten.detach, aten.clone)
_CHECK = aten._assert_tensor_metadata  # of the dtype, beside each `to`


def remove_scaled_noise(program: torch.export.ExportedProgram) -> None:
    """Replace each draw whose results all reach a product with the number 0, in place."""
    for node in program.graph.nodes:
        zeros = _ZEROS.get(node.target)
        if zeros is not None and _is_dropped(node):
            node.target = zeros


def _is_dropped(node: fx.Node) -> bool:
    """Return whether all uses are products with 0, or results that are multiplied by 0."""
    users = [user for user in node.users if _packet(user) is not _CHECK]
    return bool(users) and all(_drops(user) for user in users)


def _drops(user: fx.Node) -> bool:
    if user.target in _PRODUCTS:
        return 0 in _numbers(user) or _is_dropped(user)
    return _packet(user) in _COPIES and _is_dropped(user)


def _packet(node: fx.Node) -> object:
    return getattr(node.target, "overloadpacket", None)


def _numbers(product: fx.Node) -> list[float]:
    return [a for a in product.args if isinstance(a, int | float)]
