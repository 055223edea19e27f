"""Read and write tensors: .npz, .npy, .safetensors, .png and .wav."""

from __future__ import annotations

import json
import struct
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("<Q")
_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_WRITTEN = (".npz", ".safetensors", ".png", ".wav")
_FORMATS = "supported formats are .npz, .safetensors, .png and .wav"
_RATE = 16_000  # sample rate of written audio


def read(path: Path, *, with_alpha: bool = False) -> dict[str, torch.Tensor]:
    """Return the tensors of a file by name; images and audio have the name of the file.

    The alpha of a picture is dropped unless `with_alpha` is true.
    """
    if not path.is_file():
        raise typer.BadParameter(f"the file {path} does not exist")
    reader = _reader(path)
    try:
        found = reader(path)
        return found if with_alpha or reader is not _read_image else _opaque(found)
    except typer.BadParameter:
        raise
    except Exception as cause:  # each format raises other errors; an empty file is an EOFError
        reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
        raise typer.BadParameter(f"cannot read {path}: {reason}") from cause


def named(tensors: Mapping[str, torch.Tensor], name: str, path: Path) -> torch.Tensor:
    """Return the tensor of this name, or the only one of the file."""
    if name not in tensors and len(tensors) != 1:
        raise typer.BadParameter(f"{path} contains {list(tensors)}, not {name!r}")
    return tensors[name] if name in tensors else next(iter(tensors.values()))


def _reader(path: Path) -> Callable[[Path], dict[str, torch.Tensor]]:
    readers = {
        ".npz": _read_npz,
        ".npy": _read_npz,
        ".safetensors": _read_safetensors,
        ".png": _read_image,
        ".jpg": _read_image,
        ".jpeg": _read_image,
        ".wav": _read_audio,
    }
    if path.suffix.lower() not in readers:
        raise typer.BadParameter(f"{path.name}: supported formats are {', '.join(readers)}")
    return readers[path.suffix.lower()]


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    import numpy as np
    import torch

    loaded = np.load(path)
    arrays = {path.stem: loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    # Copy to native byte order, the only one that torch supports. `ascontiguousarray` would turn
    # rank 0 into rank 1.
    native = {n: a.astype(a.dtype.newbyteorder("="), order="C") for n, a in arrays.items()}
    return {name: torch.from_numpy(a) for name, a in native.items()}


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    import torch

    data = path.read_bytes()
    (length,) = _HEADER.unpack(data[: _HEADER.size])
    start = _HEADER.size + length
    header = json.loads(data[_HEADER.size : start])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = torch.frombuffer(bytearray(data[start + first : start + last]), dtype=torch.uint8)
            tensors[name] = raw.view(getattr(torch, _NAMES[entry["dtype"]])).reshape(entry["shape"])
    return tensors


def _read_image(path: Path) -> dict[str, torch.Tensor]:
    """Return bytes of shape [height, width, channels]: gray, RGB or RGBA, as the file has them."""
    import numpy as np
    import torch
    from PIL import Image

    with Image.open(path) as image:
        has_alpha = image.mode in ("LA", "PA") or "transparency" in image.info
        known = "RGBA" if has_alpha else "RGB"
        plain = image if image.mode in ("L", "RGB", "RGBA") else image.convert(known)
        pixels = torch.from_numpy(np.array(plain, copy=True))
    return {path.stem: pixels.reshape(pixels.shape[0], pixels.shape[1], -1)}


def _opaque(pictures: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: pixels[..., :3].contiguous() for name, pixels in pictures.items()}


def _read_audio(path: Path) -> dict[str, torch.Tensor]:
    """Return samples between -1 and 1, of shape [samples, channels]."""
    import numpy as np
    import torch

    with wave.open(str(path), "rb") as file:
        if file.getsampwidth() != 2:
            raise typer.BadParameter(f"{path.name}: only 16-bit samples are supported")
        raw = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        channels = file.getnchannels()
    samples = torch.from_numpy(raw.astype(np.float32) / 32768)
    return {path.stem: samples.reshape(-1, channels)}


def fitted(
    tensor: torch.Tensor,
    path: Path,
    dtype: torch.dtype,
    shape: tuple[Any, ...],
    image: Mapping[str, Any] | None = None,
) -> Any:
    """Convert an image or audio to the layout of an input; only cast other tensors.

    `image` are the arguments of an image input, which say the layout and the channel order.
    """
    suffix = path.suffix.lower()
    if suffix in (".png", ".jpg", ".jpeg"):
        tensor = _picture(tensor, *_wanted_pixels(shape, image))
        if dtype.is_floating_point:
            tensor = tensor.to(dtype) / 255
    elif suffix == ".wav":
        tensor = tensor.movedim(-1, 0) if tensor.shape[1] > 1 else tensor[:, 0]
    while tensor.dim() < len(shape):
        tensor = tensor.unsqueeze(0)
    fits = len(shape) == tensor.dim() and all(
        wanted in (-1, size) for wanted, size in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        sizes = ["?" if size == -1 else size for size in shape]
        raise typer.BadParameter(
            f"{path} has sizes {list(tensor.shape)}, the input has [{', '.join(map(str, sizes))}]"
        )
    return _cast(tensor, path, dtype).contiguous()


_COLORS = {1: "GRAY", 3: "RGB", 4: "RGBA"}


def _wanted_pixels(shape: tuple[Any, ...], image: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the layout and the channel order of an input, which its sizes say if nothing else."""
    if image is not None:
        return image["layout"], image["color"]
    planar = len(shape) >= 3 and shape[-3] in _COLORS and shape[-1] not in (1, 3)
    count = shape[-3 if planar else -1] if len(shape) >= 3 else 0
    return "CHW" if planar else "HWC", _COLORS.get(count, "")


def _picture(pixels: torch.Tensor, layout: str, color: str) -> torch.Tensor:
    """Return pixels `[height, width, channels]` in another layout and channel order.

    An empty order keeps the channels but alpha, which is dropped. An opaque one is added.
    """
    import torch

    if color == "GRAY" and pixels.shape[-1] > 1:
        weights = torch.tensor([19595, 38470, 7471])  # of ITU-R 601, in the rounding of PIL
        luma = (pixels[..., :3].int() * weights).sum(-1, keepdim=True)
        pixels = ((luma + 0x8000) >> 16).to(torch.uint8)
    elif not color:
        pixels = pixels[..., :3]
    elif color != "GRAY":
        alpha = pixels[..., 3:] if pixels.shape[-1] == 4 else torch.full_like(pixels[..., :1], 255)
        channels = torch.cat([pixels[..., :3].expand(*pixels.shape[:-1], 3), alpha], -1)
        pixels = channels[..., ["RGBA".index(name) for name in color]]
    return pixels.movedim(-1, 0) if layout == "CHW" else pixels


def _cast(tensor: torch.Tensor, path: Path, dtype: torch.dtype) -> torch.Tensor:
    """Cast to the dtype of an input; reject a cast that changes values."""
    import torch

    if not torch.can_cast(tensor.dtype, dtype):
        raise typer.BadParameter(f"{path} contains {tensor.dtype}, which cannot be cast to {dtype}")
    cast = tensor.to(dtype)
    if not dtype.is_floating_point and not dtype.is_complex and bool((cast != tensor).any()):
        raise typer.BadParameter(f"{path} contains numbers that do not fit into {dtype}")
    return cast


def check_writable(files: Sequence[str]) -> None:
    """Reject a file of an unknown format, before a program runs."""
    for file in files:
        if Path(file).suffix.lower() not in _WRITTEN:
            raise typer.BadParameter(f"{Path(file).name}: {_FORMATS}")


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write all tensors to one file; an image or audio file takes a single one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        _write_npz(path, tensors)
    elif suffix == ".safetensors":
        _write_safetensors(path, tensors)
    elif suffix in (".png", ".wav"):
        if len(tensors) != 1:
            raise typer.BadParameter(
                f"{path.name} can store only one of the outputs {list(tensors)}; "
                f"try  {next(iter(tensors), 'y')}={path}"
            )
        (_write_image if suffix == ".png" else _write_audio)(path, next(iter(tensors.values())))
    else:
        raise typer.BadParameter(f"{path.name}: {_FORMATS}")


def _write_npz(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    import numpy as np
    import torch

    wide = {n: t.float() if t.dtype == torch.bfloat16 else t for n, t in tensors.items()}
    np.savez(path, **{n: t.numpy() for n, t in wide.items()})  # numpy has no bfloat16


def _write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    import torch

    codes = {getattr(torch, name): code for code, name in _NAMES.items()}
    header: dict[str, Any] = {}
    parts, at = [], 0
    for name, tensor in tensors.items():
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [at, at + len(raw)]
        header[name] = {
            "dtype": codes[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
        parts.append(raw)
        at += len(raw)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(_HEADER.pack(len(encoded)) + encoded + b"".join(parts))


def _write_image(path: Path, tensor: torch.Tensor) -> None:
    """Write an image; floats are between 0 and 1."""
    from PIL import Image

    pixels = tensor
    while pixels.dim() > 3 and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.dim() == 3 and pixels.shape[0] in (1, 3):
        pixels = pixels.movedim(0, -1)
    if pixels.dim() not in (2, 3) or (pixels.dim() == 3 and pixels.shape[-1] not in (1, 3)):
        raise typer.BadParameter(f"an output of shape {list(tensor.shape)} is not an image")
    if pixels.is_floating_point():
        pixels = (pixels.clamp(0, 1) * 255).round()
    pixels = pixels.byte()
    Image.fromarray(
        pixels.squeeze(-1).numpy()
        if pixels.dim() == 3 and pixels.shape[-1] == 1
        else pixels.numpy()
    ).save(path)


def _write_audio(path: Path, tensor: torch.Tensor) -> None:
    samples = tensor.squeeze()
    if samples.dim() not in (1, 2):
        raise typer.BadParameter(f"an output of shape {list(tensor.shape)} is not audio")
    channels = samples.shape[0] if samples.dim() == 2 else 1
    frames = (samples.T if samples.dim() == 2 else samples).float().clamp(-1, 1)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(
            (frames * 32767).round().short().contiguous().numpy().astype("<i2").tobytes()
        )
