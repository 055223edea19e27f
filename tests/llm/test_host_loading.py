"""The form in which `llm.load` runs a bundle on Linux: other ops, the same numbers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import architectures
import pytest
import torch
from coreai.runtime import NDArray
from decoders import decoder
from tiny_tokenizer import tiny_tokenizer

from benchmarks import llm_decode
from coreai_torch import llm
from coreai_torch.asset import reading, resources
from coreai_torch.asset.array_memory import can_write, memory_of
from coreai_torch.asset.mlir_module import mlir_module_of
from coreai_torch.asset.worker import to_numpy
from coreai_torch.compression import memory
from coreai_torch.errors import ConversionError
from coreai_torch.ir.build import Build
from coreai_torch.llm.bundle import opening
from coreai_torch.llm.bundle.metadata import KEYS, VALUES
from coreai_torch.llm.bundle.opening import fast_loading, open_bundle
from coreai_torch.llm.bundle.runtime import Sequence
from coreai_torch.numerics.arrays import array, tensor
from coreai_torch.targets.linux_loading import edits, states
from coreai_torch.targets.linux_loading.compiling import can_edit

pytestmark = pytest.mark.skipif(not can_edit(), reason="programs are not edited on this machine")

PIECES = (17, 1, 1, 41, 1, 29, 1, 60, 1)  # more than 64 and 128 slots
PALETTES = {
    "kmeans_palettization_config": {
        "global_config": {
            "op_state_spec": {
                "weight": {
                    "n_bits": 4,
                    "granularity": {"type": "per_grouped_channel", "axis": 0, "group_size": 8},
                }
            }
        }
    }
}


def _export(path, model, **options):
    return llm.export(model, path, tokenizer=tiny_tokenizer(), verify=False, **options)


@pytest.fixture(scope="module")
def compressed(tmp_path_factory):
    model = decoder("llama", num_hidden_layers=1)
    path = _export(tmp_path_factory.mktemp("four") / "four", model, compression="4bit")
    return SimpleNamespace(path=path, asset=next(path.glob("*.aimodel")))


def _logits(runtime, fill):
    """Return all logits and the used rows of a sequence that grows, and that is rewound."""
    tokens = torch.randint(2, 90, (sum(PIECES),), generator=torch.Generator().manual_seed(0))
    sequence = Sequence(runtime, runtime.states(64, fill))
    found = [sequence.append(piece) for piece in tokens.split(PIECES)]
    found += [sequence.states.content(name)[:, :, :, : len(tokens)] for name in (KEYS, VALUES)]
    sequence.rewind(5)
    return [*found, sequence.append(tokens[50:52])]


def _check_equal(path, expand_weights=True):
    written = open_bundle(path)
    faster = open_bundle(path, load=fast_loading(expand_weights))
    for fill in (0.0, float("nan")):
        for want, got in zip(_logits(written, fill), _logits(faster, fill), strict=True):
            # Narrow layers leave columns of the states unused.
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=want.dim() == 5)
            assert want.dim() == 5 or not bool(want.isnan().any())


def test_logits_and_states_are_equal(llama_bundle):
    _check_equal(llama_bundle.path)


def test_logits_of_expanded_weights_are_equal(compressed):
    _check_equal(compressed.path)


def test_bundle_does_not_change(compressed):
    def content():
        return {p: p.read_bytes() for p in sorted(compressed.path.rglob("*")) if p.is_file()}

    before = content()
    model = llm.load(compressed.path, expand_weights=True)
    assert model.generate(torch.tensor([[5, 6]]), 2).shape == (1, 4)
    assert content() == before


@pytest.mark.parametrize(
    ("expand_weights", "memory", "is_expanded"),
    [(True, 0, True), (False, 1 << 40, False), (None, 1 << 40, True), (None, 1 << 10, False)],
)
def test_weights_are_expanded_on_request_or_if_the_memory_suffices(
    compressed, monkeypatch, expand_weights, memory, is_expanded
):
    monkeypatch.setattr(edits, "available_memory", lambda: memory)
    program = resources.asset_at(compressed.asset).program
    module = mlir_module_of(program)
    with Build.over(module) as build:
        edits.edit(build, expand_weights)
    names = [op.name for op in reading.read(program, largest=64).functions["main"].body.ops]
    assert ("coreai.blockwise_shift_scale" not in names) == is_expanded
    assert names.count("coreai.slice_update") > 0


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    # A smaller head is transposed when it is converted.
    model = decoder("llama", num_hidden_layers=1, vocab_size=5000, tie_word_embeddings=True)
    path = _export(tmp_path_factory.mktemp("tied") / "tied", model)
    return SimpleNamespace(path=path, model=model)


def test_an_embedding_that_is_the_head_is_stored_as_rows(tied):
    names = _names(_edited(tied))
    assert names.count("gather_nd") == 1
    assert "gather_along_axis" not in names


@pytest.mark.parametrize(("memory", "count"), [(1 << 40, 0), (0, 1)])
def test_the_head_is_transposed_at_load_if_the_memory_suffices(tied, monkeypatch, memory, count):
    monkeypatch.setattr(edits, "available_memory", lambda: memory)
    program = resources.asset_at(next(tied.path.glob("*.aimodel"))).program
    module = mlir_module_of(program)
    with Build.over(module) as build:
        edits.edit(build, None)
    ops = reading.read(program, largest=64).functions["main"].body.ops
    constants = {op.results[0] for op in ops if op.name == "coreai.constant"}
    turned = [o for o in ops if o.name == "coreai.transpose" and o.operands[0] in constants]
    assert len(turned) == count


def test_logits_of_a_tied_head_are_equal(tied):
    _check_equal(tied.path)


def _edited(bundle, *passes):
    """Return the ops and ports of a bundle's function after some edits."""
    program = resources.asset_at(next(bundle.path.glob("*.aimodel"))).program
    module = mlir_module_of(program)
    with Build.over(module) as build:
        for name, count in passes:
            assert getattr(states, name)(build) == count
        module.operation.verify()
    return reading.read(program, largest=64).functions["main"]


def _shape(function, state):
    return next(list(port.type.shape) for port in function.inputs if port.name == state)


def _names(function):
    return [op.name.removeprefix("coreai.") for op in function.body.ops]


def test_new_rows_are_returned_instead_of_written(llama_bundle):
    function = _edited(llama_bundle, ("return_rows", 2), ("return_rows", 0))
    assert "write_handle" not in _names(function)
    names = {port.name for port in function.outputs}
    assert {f"{KEYS}[0]", f"{VALUES}[0]"} <= names


def test_cache_is_read_by_two_splits_for_each_state(llama_bundle):
    layers = llama_bundle.model.config.num_hidden_layers
    function = _edited(llama_bundle, ("split_states", 2 * layers), ("split_states", 0))
    ops = function.body.ops
    reads = {op.results[0] for op in ops if op.name == "coreai.read_handle"}
    assert not [op for op in ops if op.name == "coreai.slice" and op.operands[0] in reads]
    products = 2 * layers  # of query, key and value, and of gate and up
    assert _names(function).count("split") == 4 + products


def test_keys_are_not_transposed_if_the_function_does_not_write_them(llama_bundle):
    layers = llama_bundle.model.config.num_hidden_layers
    before = _edited(llama_bundle, ("split_states", 2 * layers))
    after = _edited(llama_bundle, ("return_rows", 2), ("split_states", 2 * layers))
    *lead, slots, width = _shape(before, KEYS)
    assert _shape(after, KEYS) == [*lead, width, slots]
    assert _shape(after, VALUES) == _shape(before, VALUES)
    joined = {op.results[0] for op in after.body.ops if op.name == "coreai.slice_update"}
    assert len(joined) == 2 * layers
    assert not [
        op for op in after.body.ops if op.name == "coreai.transpose" and op.operands[0] in joined
    ]


def test_program_that_does_not_compile_runs_as_written(llama_bundle, monkeypatch):
    async def fail(*_):
        raise ConversionError("the edited program does not compile: broken")

    monkeypatch.setattr(opening, "load_edited", fail)
    with pytest.warns(UserWarning, match="runs as it is written: .* broken"):
        model = llm.load(llama_bundle.path)
    assert model.generate(torch.tensor([[5, 6]]), 2).shape == (1, 4)


@pytest.mark.stored
def test_page_shows_the_times_of_a_token():
    rows = json.loads(llm_decode.RESULTS.read_text())
    page = llm_decode.PAGE.read_text()
    assert page == llm_decode.page_with_table(page, rows)


def test_freed_memory_is_kept_by_options_of_the_c_library(monkeypatch):
    given = []
    monkeypatch.setattr(memory, "_function", lambda name: lambda *each: given.append((name, each)))
    memory.keep_freed_memory()
    assert [(name, option.value) for name, (option, _) in given] == [
        ("mallopt", -3),
        ("mallopt", -1),
        ("mallopt", -2),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gemma3", "gpt2", "mixtral", "gpt_oss", "deepseek_v3", "gemma4", "falcon", "phi3"]
)
def test_logits_of_architectures_are_equal(name, tmp_path):
    _check_equal(_export(tmp_path / name, architectures.build(name)))


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["8bit", "mixed", PALETTES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_logits_of_compressions_are_equal(compression, dtype, tmp_path):
    if isinstance(compression, dict):
        path = tmp_path / "palettes.yaml"
        path.write_text(json.dumps(compression))
        compression = path
    model = decoder("llama").to(dtype)
    _check_equal(_export(tmp_path / "bundle", model, compression=compression))


@pytest.mark.slow
def test_logits_with_an_int8_cache_are_equal(tmp_path):
    path = _export(tmp_path / "int8", decoder("llama"), compression="4bit", kv_cache="int8")
    _check_equal(path)


def test_memory_of_an_array_is_shared():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8):
        given = NDArray(array(torch.zeros(2, 3, dtype=dtype)))
        memory_of(given)[1, 2] = 1
        want = torch.zeros(2, 3, dtype=dtype)
        want[1, 2] = 1
        assert torch.equal(tensor(to_numpy(given)), want)
    assert can_write()


def test_rows_are_written_by_the_function_if_memory_is_not_shared(llama_bundle, monkeypatch):
    monkeypatch.setattr(edits, "can_write", lambda: False)
    _check_equal(llama_bundle.path)


def test_slots_grow_by_a_quarter(llama_bundle):
    faster = open_bundle(llama_bundle.path, load=fast_loading(None))
    assert [faster.grown(64, total) for total in (64, 65, 129, 1000)] == [64, 128, 192, 1152]
    assert open_bundle(llama_bundle.path).grown(256, 257) == 512


def test_rows_that_do_not_end_with_the_last_position_are_not_returned(llama_bundle, monkeypatch):
    """The caller writes returned rows to the last used slots, so the program must, too."""
    monkeypatch.setattr(states, "_POSITIONS", "other")
    _edited(llama_bundle, ("return_rows", 0))
    _check_equal(llama_bundle.path)
