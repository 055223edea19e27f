"""Entries that have no meaning in an inference graph, each with its reason.

Samples with random numbers or sparse layouts are detected and counted when they run.
"""

from __future__ import annotations

_RANDOM = "draws random numbers, which an input cannot seed"
_GRADIENT = "a gradient, which does not occur in an inference graph"
_CUDA = "compiles a CUDA kernel when called"
_SPARSE = "takes or returns sparse tensors; the runtime supports only dense ones"

OUT_OF_SCOPE: dict[str, str] = {
    "_softmax_backward_data": _GRADIENT,
    "bernoulli": _RANDOM,
    "cauchy": _RANDOM,
    "exponential": _RANDOM,
    "geometric": _RANDOM,
    "jiterator_2inputs_2outputs": _CUDA,
    "jiterator_4inputs_with_extra_args": _CUDA,
    "jiterator_binary": _CUDA,
    "jiterator_binary_return_by_ref": _CUDA,
    "jiterator_unary": _CUDA,
    "log_normal": _RANDOM,
    "max_pool2d_with_indices_backward": _GRADIENT,
    "multinomial": _RANDOM,
    "native_dropout_backward": _GRADIENT,
    "normal": _RANDOM,
    "normal.in_place": _RANDOM,
    "normal.number_mean": _RANDOM,
    "rand_like": _RANDOM,
    "randint": _RANDOM,
    "randint_like": _RANDOM,
    "randn": _RANDOM,
    "randn_like": _RANDOM,
    "sparse.mm.reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "to_sparse": _SPARSE,
    "uniform": _RANDOM,
}
