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


def remove_scaled_noise(program: torch.export.ExportedProgram) -> None:
    """Replace each draw whose results all reach a product with the number 0, in place."""
    for node in program.graph.nodes:
        zeros = _ZEROS.get(node.target)
        if zeros is not None and _is_dropped(node):
            node.target = zeros


def _is_dropped(node: fx.Node) -> bool:
    """Return whether products with 0, or products that are multiplied by 0, are the only users."""
    return bool(node.users) and all(
        user.target in _PRODUCTS and (0 in _numbers(user) or _is_dropped(user))
        for user in node.users
    )


def _numbers(product: fx.Node) -> list[float]:
    return [a for a in product.args if isinstance(a, int | float)]
