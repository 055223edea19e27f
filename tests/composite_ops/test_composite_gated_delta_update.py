"""GatedDeltaUpdate against Qwen3-Next, and its exported loop against eager."""

import pytest
import torch
from exported import FLOATS, NARROW, close, dims, exports, targets
from generated_examples import examples

from coreai_torch.composite_ops import GatedDeltaUpdate

LOOPS = {False: "scan", True: "while_loop"}  # by `strict`


def inputs(batch, steps, key_heads=2, group=2, dk=8, dv=6, dtype=torch.float32):
    heads = key_heads * group
    return (
        torch.randn(batch, key_heads, steps, dk).to(dtype),
        torch.randn(batch, key_heads, steps, dk).to(dtype),
        torch.randn(batch, heads, steps, dv).to(dtype),
        -torch.rand(batch, heads, steps).to(dtype),
        torch.rand(batch, heads, steps).to(dtype),
        torch.randn(batch, heads, dk, dv).to(dtype),
    )


def qwen(query, key, value, g, beta, state, use_qk_l2_norm):
    """Run the reference of Qwen3-Next: heads after steps, key heads repeated by the caller."""
    library = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    group = value.shape[1] // query.shape[1]
    query, key = (x.repeat_interleave(group, 1) for x in (query, key))
    return library.torch_recurrent_gated_delta_rule(
        *(x.transpose(1, 2) for x in (query, key, value)),
        g=g.transpose(1, 2),
        beta=beta.transpose(1, 2),
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=use_qk_l2_norm,
    )


@examples(
    100,
    lambda st: {
        "batch": st.integers(1, 3),
        "steps": st.integers(1, 9),
        "key_heads": st.integers(1, 3),
        "group": st.integers(1, 3),
        "dk": st.integers(1, 9),
        "dv": st.integers(1, 9),
        "norm": st.booleans(),
        "seed": st.integers(0, 1000),
    },
)
def test_equals_qwen3_next(batch, steps, key_heads, group, dk, dv, norm, seed):
    torch.manual_seed(seed)
    args = inputs(batch, steps, key_heads, group, dk, dv)
    if not norm:
        # Without the norm, a key longer than 1 makes the recurrence diverge.
        args = (args[0], args[1] / dk, *args[2:])
    output, state = GatedDeltaUpdate(use_qk_l2_norm=norm)(*args)
    expected, expected_state = qwen(*args, norm)
    close(output, expected)
    close(state, expected_state)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_inputs_run_in_float32_and_round_once(dtype):
    torch.manual_seed(0)
    args = inputs(2, 12, dtype=dtype)
    output, state = GatedDeltaUpdate()(*args)
    expected, expected_state = qwen(*args, True)
    close(output, expected)
    close(state, expected_state.to(dtype))


def test_state_keeps_its_dtype():
    args = inputs(1, 4, dtype=torch.float16)
    output, state = GatedDeltaUpdate()(*args[:5], args[5].float())
    assert (output.dtype, state.dtype) == (torch.float16, torch.float32)


def test_sequence_split_at_any_step_gives_the_same_result():
    torch.manual_seed(1)
    *steps, state = inputs(2, 7)
    rule = GatedDeltaUpdate()
    complete, last = rule(*steps, state)
    parts = []
    for cut in (slice(0, 1), slice(1, 5), slice(5, 7)):
        part, state = rule(*(x[:, :, cut] for x in steps), state)
        parts.append(part)
    close(torch.cat(parts, 1), complete)
    close(state, last)


def test_gradients_flow():
    args = [x.requires_grad_() for x in inputs(1, 3)]
    output, state = GatedDeltaUpdate()(*args)
    (output.sum() + state.sum()).backward()
    assert all(x.grad.isfinite().all() and x.grad.any() for x in args)


def sequence_axes(batch=None):
    (seq,) = dims("seq")
    own = {} if batch is None else {0: batch}
    return ({**own, 2: seq},) * 5 + (own,)


class Layer(torch.nn.Module):
    """The rule with parameters before and after it, as in a model."""

    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.Linear(8, 8), torch.nn.Linear(6, 6)
        self.rule = GatedDeltaUpdate()

    def forward(self, query, key, value, g, beta, state):
        output, state = self.rule(self.before(query), key, value, g, beta, state)
        return self.after(output), state


@pytest.mark.parametrize("strict", [False, True])
def test_exports_as_one_loop_with_dynamic_batch_and_steps(strict):
    torch.manual_seed(2)
    (batch,) = dims("batch")
    others = (inputs(3, 1), inputs(1, 40))
    program = exports(
        Layer(), inputs(2, 5), *others, dynamic_shapes=sequence_axes(batch), strict=strict
    )
    assert targets(program).count(LOOPS[strict]) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_static_steps_export_as_one_loop(strict):
    short = exports(GatedDeltaUpdate(), inputs(1, 2), strict=strict)
    long = exports(GatedDeltaUpdate(), inputs(1, 64), strict=strict)
    assert targets(long).count(LOOPS[strict]) == 1
    assert targets(long) == targets(short)


@pytest.mark.parametrize(
    ("dtype", "strict"), [*((dtype, False) for dtype in FLOATS), (torch.float32, True)]
)
def test_single_static_step_has_no_loop(dtype, strict):
    program = exports(GatedDeltaUpdate(), inputs(2, 1, dtype=dtype), strict=strict)
    assert not {*LOOPS.values()} & {*targets(program)}


def test_static_export_does_not_specialize_a_later_dynamic_one():
    exports(GatedDeltaUpdate(), inputs(2, 5))
    (batch,) = dims("batch")
    exports(GatedDeltaUpdate(), inputs(2, 5), inputs(4, 3), dynamic_shapes=sequence_axes(batch))


def test_exports_in_float16_with_dynamic_steps():
    args = inputs(2, 6, dtype=torch.float16)
    other = inputs(2, 11, dtype=torch.float16)
    exports(GatedDeltaUpdate(use_qk_l2_norm=False), args, other, dynamic_shapes=sequence_axes())


def test_attributes_belong_to_the_instance():
    rule = GatedDeltaUpdate(use_qk_l2_norm=False)
    assert vars(rule).items() >= {"use_qk_l2_norm": False, "version": 1}.items()


@pytest.mark.parametrize(
    ("place", "shape", "message"),
    [
        (0, (2, 2, 5), r"query is \[2, 2, 5\], expected \[B, Nk, S, Dk\]"),
        (1, (2, 2, 5, 9), r"key is \[2, 2, 5, 9\].* Dk is 8"),
        (2, (2, 4, 6, 6), r"value is \[2, 4, 6, 6\].* S is 5"),
        (2, (2, 3, 5, 6), r"g is \[2, 4, 5\].* Nv is 3"),
        (3, (2, 2, 5), r"g is \[2, 2, 5\].* Nv is 4"),
        (4, (3, 4, 5), r"beta is \[3, 4, 5\].* B is 2"),
        (5, (2, 4, 6, 8), r"initial_state is \[2, 4, 6, 8\].* Dk is 8"),
    ],
)
def test_wrong_shape_raises(place, shape, message):
    args = list(inputs(2, 5))
    args[place] = torch.ones(shape)
    with pytest.raises(ValueError, match=message):
        GatedDeltaUpdate()(*args)


def test_wrong_head_count_zero_steps_or_dtype_raises():
    args = inputs(1, 2, key_heads=2, group=1)
    three = inputs(1, 2, key_heads=3, group=1)
    with pytest.raises(ValueError, match="Nv is 3, not a multiple of Nk = 2"):
        GatedDeltaUpdate()(*args[:2], *three[2:])
    with pytest.raises(ValueError, match="S is 0"):
        GatedDeltaUpdate()(*inputs(1, 0))
    with pytest.raises(ValueError, match=r"g is torch.float64"):
        GatedDeltaUpdate()(*args[:3], args[3].double(), *args[4:])
