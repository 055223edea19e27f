"""Why lint finds something in the forms of op cases: each pair of rule and op has a reason.

Pairs in `unexplained.json` have none yet: their forms are longer than they should be, or nobody
has looked. `python -m tests.forms --record` removes pairs from it that are gone, and adds none.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

FILE = Path(__file__).parent / "unexplained.json"
_ITERATED = "*cholesky* *eig* *eigh* *inv* *inverse* *lu* *lu_* *qr* *svd* *solve* *det *slogdet"
_ITERATED += " *ldl* *householder* *matrix_exp *matrix_power geqrf ormqr"
_READS = "gather index.Tensor index_select take embedding* _embedding_bag* masked_select nonzero*"
_WRITES = (
    "scatter* index_add index_copy index_put index_reduce put _unsafe_index_put segment_reduce"
)
_WRITES += " _index_put_impl masked_scatter embedding_renorm repeat_interleave.Tensor"
_WRITES += " max_pool2d_with_indices_backward"
_COUNTS = "bincount *unique* hist* _histogramdd*"

# By rule: patterns of ops with the reason; the first pattern that matches counts.
REASONS: dict[str, dict[str, str]] = {
    "HAZ03": {"*": "a case has a size of zero"},
    "HAZ06": {
        "kthvalue median* nanmedian* mode sort* topk unique_dim": "the op is a sort",
        "max.dim min.dim": "the op returns the position of an extreme",
    },
    "HAZ07": {
        "*3d* convolution": "batch, channels and three axes of space, which a step splits",
        "pixel_shuffle im2col _adaptive_avg_pool2d_backward upsample_nearest2d_backward": (
            "the op splits two axes"
        ),
        "coreai::lut_to_dense": "the table of a weight of rank 4",
    },
    "HAZ08": {
        _ITERATED: "a factorization has a step for each column or rotation",
        "gcd lcm igamma igammac": "the op iterates until it converges",
        "*polynomial*": "the recurrence runs up to the largest degree, which is an input",
        "polygamma special_zeta*": "the loop ends as soon as no element needs another term",
    },
    "HAZ10": {
        "_unique2 bincount index.Tensor masked_select nonzero* unique_*": (
            "the sizes of the results depend on values"
        )
    },
    "HAZ11": {
        "log2 log10": "the logarithm of a power of the base is a whole number",
        "digamma lgamma polygamma": "the reflection formula needs the nearest integer",
        "erfc special_erfcx": "the operand is rounded, so that its square is exact",
        "ceil floor round* trunc div.*_mode frexp* *fake_quantize*": "the op rounds",
        "_to_copy copy prims::convert_element_type": "floats are truncated before the cast",
        "grid_sampler* fractional_max_pool* histc": "positions are rounded down",
    },
    "HAZ12": {"*upsample_bi*": "bytes are interpolated in fixed point"},
    "HAZ13": {
        "argmax argmin max.dim min.dim topk": "with exact, the index of the first NaN counts",
        "div.Tensor_mode": "in half precision, signs of remainder and divisor are compared",
    },
    "HAZ15": {
        "argmax argmin max.dim min.dim mode topk": "the op returns the position of an extreme",
        _ITERATED: "the pivot of a column",
        "fractional_max_pool*": "the op returns the positions of the maxima",
    },
    "HAZ20": {
        "convolution _convolution convolution_backward": "the case is a 1-d transposed convolution"
    },
    "HAZ26": {
        "fractional_max_pool*": "positions of windows and their elements are added",
        "as_strided* prims::as_strided*": "positions are the sum of those along two axes",
        "multilabel_margin_loss_forward": "scores of labels and of classes are subtracted",
    },
    "HAZ28": {"*": "a case adds or multiplies integers"},
    "HAZ29": {"*": "a case adds or multiplies integers"},
    "HAZ30": {f"{_WRITES} {_COUNTS} _embedding_bag*": "the op writes at the positions of an input"},
    "HAZ32": {
        "logsumexp": "an infinite maximum is limited to the numbers of float16",
        "nan_to_num": "infinities become the largest numbers of float16",
    },
    "HAZ33": {"add.Tensor sub.Tensor": "a case has the summand 1e-6 in float16"},
    "HAZ34": {"mean.dim": "the mean of no elements is NaN"},
    "HAZ35": {
        "index_copy index_put _index_put_impl _unsafe_index_put": (
            "the op writes at the position of an input"
        )
    },
    "HAZ36": {"scaled_dot_product_attention": "a case has no mask"},
    "HAZ37": {"scaled_dot_product_attention": "a case has values of another size than its queries"},
    "HAZ41": {"coreai::lut_to_dense": "the table of a weight of rank 4"},
    "HAZ52": {
        "kthvalue median* nanmedian* mode sort* topk": "values are read in sorted order",
        "fractional_max_pool*": "the windows begin at positions that are an input",
        "multilabel_margin_loss_forward": "scores are read at labels, which are an input",
        _READS: "the op reads at positions that are known only at run time",
        f"{_WRITES} {_COUNTS}": "the op writes at positions that are known only at run time",
        "bucketize* searchsorted* isin* grid_sampler* _grouped_mm": (
            "the op reads at positions that it computes"
        ),
    },
    "HAZ53": {
        f"kthvalue median* nanmedian* mode sort* topk isin* {_COUNTS}": "the op is a sort",
        "*eig* *svd* *pinv* *lu_solve": "the results are in order",
    },
}


def reason(code: str, op: str) -> str:
    """Return why the form of an op may break a rule; nothing if that is not known."""
    for patterns, why in REASONS.get(code, {}).items():
        if any(fnmatchcase(op, pattern) for pattern in patterns.split()):
            return why
    is_prim = op.startswith("prims::") and op != "prims::convert_element_type"
    return "it computes with an op of torch that has the same finding" if is_prim else ""


def unexplained() -> dict[str, list[str]]:
    """Return the ops by rule that have no reason yet."""
    found: dict[str, list[str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def keep(found: Collection[tuple[str, str]]) -> None:
    """Remove from the unexplained pairs those that were not found again."""
    pairs = {(code, op) for code, ops in unexplained().items() for op in ops}
    write(pairs & set(found))


def write(pairs: Collection[tuple[str, str]]) -> None:
    """Store the unexplained pairs of rules and ops."""
    by_code = {code: sorted(op for c, op in pairs if c == code) for code, _ in sorted(pairs)}
    FILE.write_text(json.dumps(by_code, indent=1) + "\n")
