"""Functions that read tensor values or fix sizes convert, and give the results of torch."""

from __future__ import annotations

import pytest
import runtime
import torch
from module_runner import Call, run
from torch.nn import functional

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.exporting import decompose, export
from coreai_torch.errors import ConversionError, TorchFaultError

pytestmark = [
    # The frequencies of a weighted covariance are summed as integers.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
    pytest.mark.filterwarnings("ignore:cov... degrees of freedom:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*out.* tensor .*:UserWarning"),
    pytest.mark.filterwarnings(
        "ignore:An output with one or more elements was resized:UserWarning"
    ),
]

torch.manual_seed(0)
X, Y = torch.randn(4, 3), torch.randn(4, 3)
FREQUENCIES, WEIGHTS = torch.tensor([2, 0, 1]), torch.tensor([0.5, 1.5, 1.0])
LOGITS = torch.randn(5, 2, 5).log_softmax(-1)
LABELS, LENGTHS = torch.tensor([[1, 1, 3], [2, 4, 0]]), torch.tensor([3, 2])
STEPS = torch.tensor([5, 4])

FUNCTIONS = {
    "equal": (lambda x, y: torch.scalar_tensor(torch.equal(x, y)), (X, X + 0)),
    "not equal": (lambda x, y: torch.scalar_tensor(x.equal(y)), (X, Y)),
    "equal of other sizes": (lambda x, y: x + x.equal(y), (X, Y[:2])),
    "allclose": (lambda x, y: torch.scalar_tensor(x.allclose(y, atol=1e-2)), (X, X + 1e-3)),
    "covariance": (lambda x: torch.cov(input=x), (X,)),
    "covariance of one": (lambda x: x[0].cov(correction=0), (X,)),
    "covariance, weighted": (
        lambda x, f, a: x.cov(correction=1, fweights=f, aweights=a),
        (X, FREQUENCIES, WEIGHTS),
    ),
    "covariance of too few": (lambda x, f: x.cov(correction=9, fweights=f), (X, FREQUENCIES)),
    "correlation": (torch.corrcoef, (X,)),
    "correlation of one": (lambda x: torch.corrcoef(x[0]), (X,)),
    "combinations": (lambda x: torch.combinations(x[0], r=2), (X,)),
    "combinations, repeating": (lambda x: torch.combinations(x[0], 3, True), (X,)),
    "narrow": (lambda x, i: x.narrow(0, i, 2), (X, torch.tensor(1))),
    "narrow from the end": (lambda x, i: torch.narrow(x, 1, i, 1), (X, torch.tensor(-2))),
    "narrow by a number": (lambda x: torch.narrow(x, 1, 1, 2), (X,)),
    "one-hot": (lambda i: functional.one_hot(i), (LABELS,)),
    "one-hot of six": (lambda i: functional.one_hot(i, 6), (LABELS,)),
    "gaussian loss": (
        lambda x, y, v: functional.gaussian_nll_loss(x, y, v, full=True, reduction="sum"),
        (X, Y, X[:, 0].square()),
    ),
    "gaussian loss of a number": (lambda x, y: functional.gaussian_nll_loss(x, y, 0.5), (X, Y)),
    "alignment": (
        lambda x, t, i, n: functional.ctc_loss(x, t, i, n, reduction="none"),
        (LOGITS, LABELS, STEPS, LENGTHS),
    ),
    "alignment in one row": (
        lambda x, t: functional.ctc_loss(x, t, (5, 4), (2, 3), blank=4),
        (LOGITS, torch.tensor([1, 1, 3, 2, 0])),
    ),
    "alignment in one row in a loop, with an empty target": (
        lambda x, t, i, n: functional.ctc_loss(x, t, i, n, reduction="none", zero_infinity=True),
        (
            torch.linspace(-3, 2, 20 * 4 * 5).sin().reshape(20, 4, 5).log_softmax(2),
            torch.tensor([1, 1, 3, 2, 2, 4, 3]),
            torch.tensor([20, 9, 1, 14]),
            torch.tensor([3, 0, 3, 1]),
        ),
    ),
    "alignment in a loop of 20 steps": (
        lambda x, t: functional.ctc_loss(x.repeat(4, 1, 1), t, (20, 17), (3, 2)),
        (LOGITS, LABELS),
    ),
    "alignment that cannot be": (
        lambda x, t: functional.ctc_loss(x[:2], t, (2, 2), (3, 1), zero_infinity=True),
        (LOGITS, LABELS),
    ),
    "alignment of one": (
        lambda x, t: functional.ctc_loss(x, t, (5,), (2,), reduction="sum"),
        (LOGITS[:, 0], torch.tensor([3, 3])),
    ),
    "least squares": (lambda x, b: tuple(torch.linalg.lstsq(x, b, driver="gels"))[:2], (X, Y)),
    "least squares, wide": (lambda x, b: torch.linalg.lstsq(x, b).solution, (X.T, Y[:3])),
    "least squares by values": (
        lambda x, b: tuple(torch.linalg.lstsq(x, b, driver="gelsd"))[2:],
        (X[:3], Y[:3]),
    ),
}


@pytest.fixture(scope="module")
def results():
    """Call all functions in one program."""
    functions, given = zip(*FUNCTIONS.values(), strict=True)
    counts = [len(args) for args in given]

    def together(*tensors):
        left = iter(tensors)
        called = [
            f(*(next(left) for _ in range(n))) for f, n in zip(functions, counts, strict=True)
        ]
        return [value for one in called for value in (one if isinstance(one, tuple) else (one,))]

    tensors = tuple(t for args in given for t in args)
    program = decompose(export(Call(together), tensors, None, None), get_decomp_table())
    got = iter(run(TorchConverter().add_exported_program(program).to_coreai(), tensors))
    found = {}
    for name, (function, args) in FUNCTIONS.items():
        want = function(*args)
        want = want if isinstance(want, tuple) else (want,)
        found[name] = [(next(got), w) for w in want]
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_equal_torch(name, results):
    for got, want in results[name]:
        narrow = want.to(torch.int32) if want.dtype == torch.int64 else want
        torch.testing.assert_close(got, narrow, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_lstsq_with_another_driver_is_left_to_torch():
    sections = Call(lambda x, b: torch.linalg.lstsq(x, b, driver="gelsd").residuals)
    with pytest.raises(Exception, match="linalg_lstsq"):
        export(sections, (X, Y), None, None)


@pytest.mark.parametrize(("start", "end", "dtype"), [(-1, 1, None), (3.5, -2.5, torch.float16)])
def test_linspace_with_a_dynamic_number_of_steps(start, end, dtype):
    model = Call(lambda x: torch.linspace(start, end, x.shape[0], dtype=dtype))
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    program = coreai_torch.convert(model, (torch.zeros(6),), dynamic_shapes=(sizes,))
    for count in (1, 2, 7, 6, 3000):
        (got,) = runtime.run(program, {"args_0": torch.zeros(count)}).values()
        want = torch.linspace(start, end, count, dtype=dtype)
        tolerance = 1e-6 if dtype is None else 4e-3
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def _written(make, shape):
    """Write into a tensor of another shape with as many elements, and read it in that shape."""

    def write(x):
        out = torch.zeros(shape)
        made = make(out)
        return torch.cat([made + x[0], out], -1)

    return Call(write)


@pytest.mark.parametrize("shape", [(2, 3), (6, 1), (1, 6), (1, 2, 3)])
@pytest.mark.parametrize(
    "make",
    [
        lambda out: torch.arange(6, out=out),
        lambda out: torch.arange(0.5, 6.5, dtype=torch.float32, out=out),
        lambda out: torch.linspace(0, 1, 6, out=out),
        lambda out: torch.logspace(0, 1, 6, out=out),
    ],
)
def test_out_keeps_its_shape_if_it_has_as_many_elements(make, shape):
    model, x = _written(make, shape), torch.tensor([0.5])
    program = coreai_torch.convert(model, (x,), verify=False)
    (got,) = runtime.run(program, {"args_0": x}).values()
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-6)


def test_out_of_another_size_is_resized():
    def resized(x):
        out = torch.zeros(2, 2)
        torch.arange(5, out=out)
        return x + out

    x = torch.zeros(5)
    program = coreai_torch.convert(Call(resized), (x,), verify=False)
    (got,) = runtime.run(program, {"args_0": x}).values()
    torch.testing.assert_close(got, resized(x))


def test_out_may_be_a_part_of_a_tensor():
    def part(x):
        whole = torch.zeros(2, 3)
        torch.arange(4, out=whole[:, :2])
        return whole + x[0]

    x = torch.tensor([0.5])
    program = coreai_torch.convert(Call(part), (x,), verify=False)
    (got,) = runtime.run(program, {"args_0": x}).values()
    torch.testing.assert_close(got, part(x))


@pytest.mark.parametrize(
    ("part", "count"), [(lambda x: x[:, :2], 4), (lambda x: x[0:1], 3), (lambda x: x.t()[0:1], 2)]
)
def test_part_that_torch_exports_in_another_shape_is_rejected(part, count):
    def write(x):
        whole = torch.zeros(2, 3)
        torch.arange(count, out=part(whole))
        return whole + x[0]

    exported = torch.export.export(Call(write), (torch.tensor([0.5]),))
    program = exported.run_decompositions(get_decomp_table())
    with pytest.raises(TorchFaultError, match="written to a part of a tensor"):
        TorchConverter().add_exported_program(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: torch.arange(6, out=x),
        lambda x: torch.sum(x, 0, out=x),
        lambda x: torch.linspace(0, 1, 7, out=x),
        lambda x: torch.zeros(7, out=x),
    ],
)
def test_input_that_out_resizes_is_rejected(write):
    exported = torch.export.export(Call(lambda x: write(x) * 2), (torch.zeros(5),))
    program = exported.run_decompositions(get_decomp_table())
    with pytest.raises(ConversionError, match=r"(?s)shape of the input 'args_0' from \[5\] to"):
        TorchConverter().add_exported_program(program)
