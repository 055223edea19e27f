"""`export`: a decoder of `transformers` to a bundle that the language-model engine runs."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...asset.replacing import check_replaceable, replacing
from ...compression.memory import release_freed_memory, release_mapped_pages
from ...converter import TorchConverter
from ...errors import ConversionError, OverwriteError
from ...progress import Stages, stages
from ..converting import check_model
from . import weight_compression
from .int8_cache import check_cache
from .metadata import BUNDLE, CACHE_KEY, DTYPE_KEY, FILE, GENERATION_KEY, BundleMetadata
from .model_folder import eos_token_ids, image_settings, load_model, read_tokenizer
from .reference import compute_dtype
from .tokenizer_folder import FOLDER, check_tokenizer, write_tokenizer

_SUFFIXES = (".aimodel", ".aimodelc")
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_VISION_CONTEXT = 4096
_CONTEXT_NAMES = ("max_position_embeddings", "max_seq_len", "seq_length")


def export(
    model: torch.nn.Module | Path | str,
    output: Path | str,
    *,
    tokenizer: Any = None,
    name: str | None = None,
    max_context_length: int | None = None,
    dtype: str | None = None,
    compression: Path | str | None = "none",
    target: str = "gpu",
    kv_cache: str = "float",
    verify: bool = True,
    overwrite: bool = False,
    turn_weights: bool = True,
    recognize: bool | Collection[str] = True,
    image_size: int | None = None,
) -> Path:
    """Write a bundle (schema 0.2) for Apple's language-model engine.

    The bundle is a folder with `metadata.json`, an `.aimodel` and a folder `tokenizer`. Its
    function `main` has the inputs `input_ids` and `position_ids`, the states `keyCache` and
    `valueCache`, and the float16 output `logits`. Returns the path of the bundle. Raises
    `ConversionError` with the reason for a model that the engine cannot run: one with an encoder,
    or one without keys and values. Convolutions and recurrences of a hybrid model become states of
    a fixed size. A vision-language model (Gemma 3, Qwen2-VL, Qwen2.5-VL) becomes a bundle of three
    assets.

    ```text
    llm.export("Qwen3-0.6B/", "qwen3_0_6b")
    ```

    Args:
        model: a folder that `save_pretrained` wrote, or a decoder with its head, such as a
            `LlamaForCausalLM`, in evaluation mode. It is not changed.
        output: the folder to write; it replaces an existing bundle only with `overwrite`.
        tokenizer: a fast tokenizer, a processor that has one, or a folder; by default the one in
            the model's folder.
        name: the name of the bundle and its asset; by default that of the output folder.
        max_context_length: the maximum number of tokens of prompt and output together; by default
            the number of positions of the model, which it must not exceed. The cache of a
            vision-language bundle has this fixed length; there the default is at most 4096.
        dtype: "float16", "bfloat16" or "float32" to load the weights of a folder as; by default
            the dtype in which they are stored. A model is exported in its dtype.
        compression: "4bit" (blocks of 32), "8bit", "mixed" (8 bits for the layers that are most
            sensitive, 4 bits for the others), "none", or a YAML file in the form of coreai-opt.
            `verify` then compares with the compressed model.
        target: "gpu" writes the dynamic function `main`. "neural_engine" writes a static bundle:
            functions with fixed sizes, 1x1 convolutions and float16 weights, for decoders like
            Llama, Qwen and Mistral. Its context is 256, 512, ... tokens, by default up to 4096.
        kv_cache: "float" stores keys and values in the dtype of the model, "int8" in half of the
            memory of float16. Only the default (pipelined) engine runs an int8 cache.
        verify: run the written bundle and compare its logits with the model's.
        overwrite: replace an existing bundle.
        turn_weights: store the weights of linear layers transposed, which makes the Linux runtime
            several times faster; the export needs memory for both.
        recognize: convert norms, rotary embeddings and attention to composites.
        image_size: the height and width of images, for a vision-language model with any size.
    """
    bundle, is_static = Path(output), _is_static(target)
    check_cache(kv_cache, "static" if is_static else "")
    _check_output(bundle, overwrite)
    with torch.no_grad(), stages() as stage:
        with stage("loading"):
            source = _load(model, tokenizer, dtype)
            if is_static:
                source = _static_source(source)
            layers, linear, vocabulary = _first_step(source.model)
            _check_kind(source.model, linear, target)
            chosen = name or bundle.absolute().name
            context = max_context_length
            family = _family(source.model, image_size)
            if family is not None:
                check_cache(kv_cache, "vision-language")
                context = context or _vision_context(source.model)
            request = _Request.of(source, chosen, vocabulary, context, is_static)
        with stage("compressing"):
            source = _compressed(source, compression)
        with replacing(bundle, BUNDLE) as folder:
            folder.mkdir()
            write_tokenizer(source.tokenizer, folder / FOLDER, request.eos_token_ids)
            metadata = request.metadata(source, compression, kv_cache)
            if linear is not None:
                names = tuple(state.name for state in linear.states)
                metadata = replace(metadata, fixed_states=names)
            options = _Options(recognize, turn_weights, verify)
            family = _family(source.model, image_size)
            if family is None:
                _write_decoder(folder, source, (layers, linear), metadata, options, stage)
            else:
                _write_vision(folder, source, family, layers, metadata, options, stage)
    return bundle


@dataclass(frozen=True)
class _Options:
    """Options of the conversion."""

    recognize: bool | Collection[str]
    turn_weights: bool
    verify: bool


def _write_decoder(
    folder: Path,
    source: _Source,
    cache: tuple[list[Any], Any],
    metadata: BundleMetadata,
    options: _Options,
    stage: Stages,
) -> None:
    """Write the asset and the metadata of a decoder, and verify it."""
    layers, linear = cache
    limit = metadata.max_context_length
    converter = TorchConverter(recognize=options.recognize and not metadata.is_static)
    if metadata.is_static:
        from .static import exporting as static

        with stage("exporting"):
            static.stage_decoder(converter, source.model, layers, limit)
        _write_asset(converter, folder / metadata.asset, stage, static.constrain_to(limit))
    else:
        from .main_function import Main, stage_main

        with stage("exporting"):
            main = Main(source.model, layers, metadata.kv_cache, linear)
            stage_main(converter, main, limit, turn_weights=options.turn_weights)
        _write_asset(converter, folder / metadata.asset, stage)
    (folder / FILE).write_text(metadata.to_json(), "utf-8")
    if options.verify:
        from .checks.running import verify_bundle

        with stage("verifying"):
            verify_bundle(folder, source.model)


def _write_vision(
    folder: Path,
    source: _Source,
    family: Any,
    layers: list[Any],
    metadata: BundleMetadata,
    options: _Options,
    stage: Stages,
) -> None:
    """Write the three assets and the metadata of a vision-language model, and verify it."""
    from .checks.running import verify_bundle
    from .vision import exporting

    parts = exporting.parts(family, layers, metadata, turn_weights=options.turn_weights)
    for name, add in parts.items():
        converter = TorchConverter(recognize=options.recognize)
        with stage(f"exporting {name}"):
            add(converter)
        _write_asset(converter, folder / name, stage)
    described = exporting.describe(metadata, family, source.tokenizer, source.processor)
    (folder / FILE).write_text(described.to_json(), "utf-8")
    exporting.write_turn_end(folder / FOLDER, source.tokenizer)
    if options.verify:
        with stage("verifying"):
            verify_bundle(folder, source.model, family)


def _family(model: Any, image_size: int | None) -> Any:
    """Return the family of a vision-language model; None for a decoder of text."""
    from .vision.families import family_of, is_vision_language

    if is_vision_language(model.config):
        return family_of(model, image_size)
    if image_size is not None:
        raise ConversionError(
            f"image_size is {image_size!r}, but {type(model).__name__} takes no images\n"
            "  try   leave image_size out"
        )
    return None


def _vision_context(model: Any) -> int:
    config = model.config.get_text_config(decoder=True)
    return min(_context(model, config, None), _VISION_CONTEXT)


@dataclass(frozen=True)
class _Source:
    """A model with its tokenizer, and the id that the bundle names."""

    model: Any
    tokenizer: Any
    model_id: str
    is_own: bool  # loaded here, so that it may be changed
    processor: Any = None  # the image processor or its configuration


@dataclass(frozen=True)
class _Request:
    """The facts of the bundle that do not depend on the conversion."""

    name: str
    vocab_size: int
    max_context_length: int
    eos_token_ids: tuple[int, ...]
    is_static: bool = False

    @classmethod
    def of(
        cls,
        source: _Source,
        name: str,
        vocabulary: int,
        max_context_length: int | None,
        is_static: bool,
    ) -> _Request:
        model = source.model
        config = model.config.get_text_config(decoder=True)
        if len(source.tokenizer) > vocabulary:
            raise ConversionError(
                f"the tokenizer has {len(source.tokenizer)} tokens, but {type(model).__name__} has "
                f"{vocabulary}\n  try   pass the tokenizer of this model"
            )
        ends = eos_token_ids(model)
        check_tokenizer(source.tokenizer, ends)
        context = _context(model, config, max_context_length)
        if is_static:
            from .static.requirements import choose_context

            context = choose_context(model, context, max_context_length)
        return cls(_safe(name), vocabulary, context, ends, is_static)

    @property
    def asset(self) -> str:
        return f"{self.name}.aimodel"

    def metadata(
        self, source: _Source, compression: Path | str | None, kv_cache: str
    ) -> BundleMetadata:
        generation = source.model.generation_config.to_diff_dict()
        generation.pop("transformers_version", None)
        facts = {GENERATION_KEY: json.dumps(generation, sort_keys=True)}
        facts |= weight_compression.recipe_text(compression)
        if kv_cache == "int8":
            dtype = str(compute_dtype(source.model)).removeprefix("torch.")
            facts |= {CACHE_KEY: kv_cache, DTYPE_KEY: dtype}
        return BundleMetadata(
            name=self.name,
            asset=self.asset,
            tokenizer=source.model_id,
            vocab_size=self.vocab_size,
            max_context_length=self.max_context_length,
            hf_model_id=source.model_id,
            compression=weight_compression.label(compression),
            is_static=self.is_static,
            user_data=facts,
        )


def _is_static(target: str) -> bool:
    """Return whether the target needs static shapes; raise for an unknown one."""
    if target not in ("gpu", "neural_engine"):
        raise ConversionError(f"unknown target {target!r}\n  try   pass 'gpu' or 'neural_engine'")
    return target == "neural_engine"


def _static_source(source: _Source) -> _Source:
    """Return the source with a model that can run on the Neural Engine."""
    from .static.requirements import check_decoder, in_half

    check_decoder(source.model)
    model = in_half(source.model, is_own=source.is_own)
    return replace(source, model=model, is_own=source.is_own or model is not source.model)


def _safe(name: str) -> str:
    """Return a name of letters, digits and underscores."""
    if not isinstance(name, str):
        raise ConversionError(f"name is {name!r}, not text\n  try   pass name='my_model'")
    return re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "model"


def _check_output(target: Path, overwrite: bool) -> None:
    if target.suffix in _SUFFIXES:
        raise ConversionError(
            f"{target} has the suffix of an asset; the engine does not load a bundle with this "
            f"name\n  try   pass {target.with_suffix('')}"
        )
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConversionError(
            f"the folder {parent} cannot be created: {error.strerror}\n  try   pass another folder"
        ) from error
    if not os.access(parent, os.W_OK):
        raise ConversionError(f"{parent} is not writable\n  try   pass another folder")
    check_replaceable(target, BUNDLE)
    if target.exists() and any(target.iterdir()) and not overwrite:
        raise OverwriteError(f"{target} exists\n  try   pass overwrite=True, or another folder")


def _load(model: Any, tokenizer: Any, dtype: str | None) -> _Source:
    """Return the model and its tokenizer, loaded from their folders if needed."""
    if dtype is not None and dtype not in _DTYPES:
        raise ConversionError(f"unknown dtype {dtype!r}\n  try   pass one of {list(_DTYPES)}")
    model_id, is_own = _model_id(model), isinstance(model, str | Path)
    if is_own:
        tokenizer = model if tokenizer is None else tokenizer
        model = load_model(model, "auto" if dtype is None else _DTYPES[dtype])
    elif dtype is not None:
        raise ConversionError(
            "dtype applies to a model that is loaded from a folder\n"
            f"  try   pass model.to(torch.{dtype})"
        )
    check_model(model)
    processor = getattr(tokenizer, "image_processor", None)
    if processor is not None:
        tokenizer = tokenizer.tokenizer
    elif isinstance(tokenizer, str | Path):
        processor = image_settings(Path(tokenizer))
    return _Source(model, read_tokenizer(tokenizer), model_id, is_own, processor)


def _compressed(source: _Source, compression: Path | str | None) -> _Source:
    """Return the source with compressed weights; a model of the caller is copied first."""
    if compression is None or str(compression) == "none":
        return source
    model = source.model if source.is_own else copy.deepcopy(source.model)
    part = weight_compression.decoder_of(model)
    weight_compression.compress_decoder(part, compression, source.tokenizer)
    return replace(source, model=model)


def _model_id(model: Any) -> str:
    """Return the id of a model, without the directories of this machine."""
    path = model if isinstance(model, str | Path) else getattr(model, "name_or_path", "")
    text = str(path)
    if text and Path(text).exists():
        return Path(text).absolute().name
    return text or type(model).__name__


def _context(model: Any, config: Any, given: int | None) -> int:
    found = (getattr(config, name, None) for name in _CONTEXT_NAMES)
    most = next((one for one in found if isinstance(one, int) and one > 0), None)
    if given is None and most is None:
        raise ConversionError(
            f"the configuration of {type(model).__name__} does not limit the context\n"
            "  try   pass max_context_length"
        )
    context: Any = most if given is None else given
    wrong = not isinstance(context, int) or isinstance(context, bool) or context < 1
    if wrong or (most is not None and context > most):
        limit = f"from 1 to {most}" if most is not None else "of 1 or more"
        raise ConversionError(
            f"max_context_length is {context!r}; {type(model).__name__} has {most} positions\n"
            f"  try   pass a max_context_length {limit}"
        )
    return int(context)


def _check_kind(model: Any, linear: Any, target: str) -> None:
    """Raise for fixed states in a bundle whose engine keeps keys and values only."""
    from .vision.families import is_vision_language

    kind = "vision-language" if is_vision_language(model.config) else ""
    kind = "static" if _is_static(target) else kind
    if linear is not None and kind:
        raise ConversionError(
            f"{type(model).__name__} has states beside keys and values, which the engine of {kind} "
            "bundles does not keep\n  try   pass target='gpu'"
        )


def _first_step(model: Any) -> tuple[list[Any], Any, int]:
    """Return the sizes of keys and values, the linear layers, and the size of the vocabulary.

    Raise for models that store anything else between steps.
    """
    from ..export_steps import split_layers
    from .states import LayerShape

    if model.config.is_encoder_decoder:
        raise ConversionError(
            f"{type(model).__name__} has an encoder; a bundle contains a decoder only\n"
            "  try   call coreai_torch.llm.convert(model, max_length), which converts encoders"
        )
    try:
        first = model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True)
    except (RuntimeError, TypeError, ValueError) as error:
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            split_layers(model, None)  # raises: its cache is of another kind
        raise ConversionError(
            f"{type(model).__name__} itself fails on one token with a cache: {error}\n"
            "  try   correct its configuration until model(input_ids=..., use_cache=True) works"
        ) from error
    for weight in model.parameters():
        release_mapped_pages(weight)  # the step has read all weights
    stored = getattr(first, "past_key_values", None) or getattr(first, "cache_params", None)
    pairs, cache = split_layers(model, stored)
    linear = None
    if cache is not None:
        from .linear_states import LinearLayers, check_chunks

        linear = LinearLayers.of(model, cache)
        check_chunks(model)
    return [LayerShape.of(*pair) for pair in pairs], linear, int(first.logits.shape[-1])


def _write_asset(
    converter: TorchConverter,
    path: Path,
    stage: Stages,
    change: Callable[[Any], None] | None = None,
) -> None:
    with stage("converting", live=False):
        program = converter.to_coreai()
    release_freed_memory()
    if change is not None:
        change(program)
    with stage("optimizing"):
        program.optimize()
    with stage("saving"):
        program.save_asset(path)
