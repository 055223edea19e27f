"""Read the YAML files that coreai-opt and coreai-models use to describe a compression."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from ..errors import ConversionError
from .specs import Spec

LayerPlan: TypeAlias = Callable[[str, nn.Module], "Spec | None"]
_SUFFIXES = (".yaml", ".yml")


def is_recipe(given: Any) -> bool:
    """Return whether a scheme is the path of a YAML file."""
    return isinstance(given, Path) or (isinstance(given, str) and given.endswith(_SUFFIXES))


def read_recipe(path: Path, *, activations: bool = False) -> tuple[LayerPlan, list[Spec]]:
    """Read a YAML file in the form of coreai-opt; raise for settings that are not supported.

    Return the scheme as a function of path and layer, and all schemes. Names precede types, types
    precede the default. Settings of activations raise unless the caller uses `Spec.inputs`.
    """
    body, read_weight = _body(path, activations)

    def read(config: Any) -> Spec | None:
        _check_mapping(path, "the description of a layer", config)
        inputs = _inputs(path, config or {}, activations)
        spec = read_weight(path, config)
        if spec is None and inputs is not None:
            raise _unsupported(path, "op_input_spec is set for a layer whose weight is unchanged")
        return None if spec is None else replace(spec, inputs=inputs)

    default = read(body.get("global_config"))
    types = {key: read(one) for key, one in (body.get("module_type_configs") or {}).items()}
    names = {
        _pattern(path, key): read(one)
        for key, one in (body.get("module_name_configs") or {}).items()
    }

    def plan(module: str, layer: nn.Module) -> Spec | None:
        for pattern, spec in names.items():
            if pattern.fullmatch(module):
                return spec
        for kind in type(layer).__mro__:
            for key, spec in types.items():
                if key in (kind.__name__, f"{kind.__module__}.{kind.__name__}"):
                    return spec
        return default

    specs = [spec for spec in (default, *types.values(), *names.values()) if spec is not None]
    return plan, specs


def _pattern(path: Path, text: Any) -> re.Pattern[str]:
    try:
        return re.compile(str(text))
    except re.error as error:
        raise _unsupported(path, f"{text!r} is not a regular expression: {error}") from error


def _check_mapping(path: Path, what: str, value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise _unsupported(path, f"{what} is {value!r}, not a mapping")


def needs_calibration(path: Path) -> bool:
    """Return whether the file asks for scales of activations from calibration data."""
    content = _load(path)
    return bool(isinstance(content, Mapping) and _extra(content).get("calibrate_activations"))


def _extra(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return content.get("coreai_models") or {}


def _body(
    path: Path, activations: bool
) -> tuple[Mapping[str, Any], Callable[[Path, Any], Spec | None]]:
    """Return the description of the layers, and the function that reads one of them."""
    content = _load(path)
    kinds = {
        "quantization_config": _quantized,
        "kmeans_palettization_config": _palettized,
        "magnitude_pruning_config": _pruned,
    }
    found = [kind for kind in kinds if isinstance(content, Mapping) and kind in content]
    if len(found) != 1:
        raise _unsupported(path, f"it needs exactly one of {', '.join(kinds)}")
    if _extra(content).get("calibrate_activations") and not activations:
        raise _unsupported(path, "activations are not compressed: calibrate_activations is set")
    body = content[found[0]] or {}
    _check_mapping(path, found[0], body)
    for key in ("module_type_configs", "module_name_configs"):
        _check_mapping(path, key, body.get(key))
    known = {"global_config", "module_type_configs", "module_name_configs", "execution_mode"}
    if unknown := {key for key, value in body.items() if value is not None} - known:
        raise _unsupported(path, f"unknown keys {', '.join(sorted(unknown))}")
    return body, kinds[found[0]]


def _load(path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ConversionError(
            f"{path} needs PyYAML, which is not installed\n  try   pip install pyyaml"
        ) from error
    if not path.is_file():
        raise ConversionError(
            f"the file {path} does not exist\n  try   pass the path of a YAML file, or a scheme"
        )
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ConversionError(f"{path} is not YAML: {error}\n  try   correct the file") from error


def _unsupported(path: Path, reason: str) -> ConversionError:
    return ConversionError(
        f"{path} cannot be used: {reason}\n"
        "  try   describe weights as op_state_spec.weight with dtype and granularity, and inputs "
        "as op_input_spec with dtype int8"
    )


def _weight(path: Path, config: Any) -> Mapping[str, Any] | None:
    """Return the description of the weight; None leaves the layer unchanged."""
    if config is None:
        return None
    _check_mapping(path, "op_state_spec", config.get("op_state_spec"))
    weight = (config.get("op_state_spec") or {}).get("weight")
    if weight is not None and not isinstance(weight, Mapping):
        raise _unsupported(path, f"the weight is {weight!r}")
    return weight


def _inputs(path: Path, config: Mapping[str, Any], supported: bool) -> str | None:
    """Return `int8` if the inputs of the layer are rounded, else None.

    Outputs are rounded where the next compressed layer reads them.
    """
    for name in ("op_input_spec", "op_output_spec"):
        _check_mapping(path, name, config.get(name))
    found = {
        name: [spec for spec in (config.get(name) or {}).values() if spec is not None]
        for name in ("op_input_spec", "op_output_spec")
    }
    for name, specs in found.items():
        if specs and not supported:
            raise _unsupported(path, f"activations are not compressed: {name} is set")
        for spec in specs:
            _check_activation(path, name, spec)
    if found["op_output_spec"] and not found["op_input_spec"]:
        raise _unsupported(path, "op_output_spec is set, but op_input_spec is not")
    return "int8" if found["op_input_spec"] else None


def _check_activation(path: Path, name: str, spec: Any) -> None:
    """Raise unless an activation has 8-bit integers and one scale."""
    if not isinstance(spec, Mapping):
        raise _unsupported(path, f"{name} contains {spec!r}")
    dtype = str(spec.get("dtype")).removeprefix("torch.")
    if dtype not in ("int8", "uint8"):
        raise _unsupported(path, f"{name} has dtype {dtype!r}; activations are int8 or uint8")
    granularity = spec.get("granularity") or {}
    if granularity.get("type", "per_tensor") != "per_tensor":
        raise _unsupported(path, f"{name} has granularity {dict(granularity)!r}")


def _check_settings(
    path: Path, weight: Mapping[str, Any], names: set[str], axis: int | None = 0
) -> Mapping[str, Any]:
    """Return the granularity; raise for settings of a weight that would have no effect."""
    granularity = weight.get("granularity") or {}
    _check_mapping(path, "granularity", granularity)
    known = {"granularity": {"type", "axis", "block_size", "group_size"}, "weight": names}
    for name, given in (("granularity", granularity), ("weight", weight)):
        if unknown := {key for key, value in given.items() if value is not None} - known[name]:
            raise _unsupported(path, f"unknown keys {', '.join(sorted(unknown))} of the {name}")
    given_axis = granularity.get("axis")
    if granularity.get("type") != "per_tensor" and given_axis not in (None, axis, (axis or 0) - 2):
        raise _unsupported(path, f"axis is {given_axis!r}; {granularity.get('type')} uses {axis}")
    return granularity


def _quantized(path: Path, config: Any) -> Spec | None:
    weight = _weight(path, config)
    if weight is None:
        return None
    dtype = str(weight.get("dtype")).removeprefix("torch.")
    if dtype not in ("int4", "int8", "uint4", "uint8"):
        raise _unsupported(path, f"dtype {dtype!r} is unknown")
    is_block = (weight.get("granularity") or {}).get("type") == "per_block"
    granularity = _check_settings(
        path, weight, {"dtype", "qscheme", "qformulation", "granularity"}, axis=int(is_block)
    )
    scheme = _scheme(path, weight, dtype)
    # A scale for each output is at least as precise as one for the complete weight.
    if granularity.get("type", "per_channel") in ("per_tensor", "per_channel"):
        return Spec(scheme)
    if not is_block or not isinstance(granularity.get("block_size"), int):
        raise _unsupported(path, f"granularity {dict(granularity)!r} is unknown")
    return Spec(scheme, granularity["block_size"])


def _scheme(path: Path, weight: Mapping[str, Any], dtype: str) -> str:
    """Return the scheme of `compress`: signed ones are symmetric, unsigned have a zero point."""
    if weight.get("qformulation") not in (None, "zp"):
        raise _unsupported(path, f"qformulation {weight['qformulation']!r} is not 'zp'")
    bits = dtype.removeprefix("u")
    schemes = {None: dtype, "symmetric": bits, "asymmetric": f"u{bits}"}
    qscheme = weight.get("qscheme")
    if qscheme not in schemes:
        raise _unsupported(path, f"qscheme {qscheme!r} is not 'symmetric' or 'asymmetric'")
    return schemes[qscheme]


def _palettized(path: Path, config: Any) -> Spec | None:
    weight = _weight(path, config)
    if weight is None:
        return None
    granularity = _check_settings(path, weight, {"n_bits", "granularity"})
    if weight.get("n_bits") not in (1, 2, 3, 4, 6, 8):
        raise _unsupported(path, f"n_bits {weight.get('n_bits')!r} is not 1, 2, 3, 4, 6 or 8")
    if granularity.get("type", "per_tensor") == "per_tensor":
        return Spec(f"palettize{weight['n_bits']}")
    if granularity["type"] != "per_grouped_channel":
        raise _unsupported(path, f"granularity {dict(granularity)!r} is unknown")
    return Spec(f"palettize{weight['n_bits']}", granularity.get("group_size"))


def _pruned(path: Path, config: Any) -> Spec | None:
    weight = _weight(path, config)
    if weight is None:
        return None
    _check_settings(path, weight, {"pruning_scheme", "target_sparsity", "granularity"})
    scheme = weight.get("pruning_scheme") or {}
    if scheme.get("type", "unstructured") != "unstructured":
        raise _unsupported(path, f"pruning_scheme {dict(scheme)!r} is unknown")
    percent = round(100 * float(weight.get("target_sparsity", 0.5)))
    if not 1 <= percent <= 99:
        raise _unsupported(
            path, f"target_sparsity {weight['target_sparsity']!r} is not 0.01 to 0.99"
        )
    return Spec(f"sparse{percent}")
