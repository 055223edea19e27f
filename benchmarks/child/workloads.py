"""The measured models: real architectures with random weights, and synthetic extremes."""

import tempfile
from pathlib import Path

import torch
from chain import exported_chain
from torch import nn


def _from_config(model_class, config_class, **config):
    import transformers

    config = getattr(transformers, config_class)(**config)
    return getattr(transformers, model_class)(config).eval()


class _First(nn.Module):
    """Run a `transformers` model without a cache and return its first result."""

    def __init__(self, model, **options):
        super().__init__()
        self.model, self.options = model, options

    def forward(self, x):
        return self.model(x, return_dict=False, **self.options)[0]


def bert():
    ids = torch.randint(0, 30_000, (1, 128))
    return _First(_from_config("BertModel", "BertConfig")), (ids,)


def vit():
    model = _from_config("ViTForImageClassification", "ViTConfig", num_labels=1000)
    return _First(model), (torch.rand(1, 3, 224, 224),)


def resnet():
    model = _from_config("ResNetForImageClassification", "ResNetConfig", num_labels=1000)
    return _First(model), (torch.rand(1, 3, 224, 224),)


def whisper():
    model = _from_config(
        "WhisperModel",
        "WhisperConfig",
        d_model=768,
        encoder_layers=12,
        decoder_layers=1,
        encoder_attention_heads=12,
        encoder_ffn_dim=3072,
    )
    return _First(model.encoder), (torch.rand(1, 80, 3000),)


def decoder(dtype=torch.float32):
    model = _from_config(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return _First(model.to(dtype), use_cache=False), (torch.randint(0, 151_936, (1, 64)),)


def decoder_f16():
    return decoder(torch.float16)


def linears(count, width):
    """Return a stack of linear layers; drawing each weight separately would take minutes."""
    layers = []
    for _ in range(count):
        with torch.device("meta"):
            layer = nn.Linear(width, width)
        layer = layer.to_empty(device="cpu")
        torch.outer(torch.randn(width), torch.randn(width), out=layer.weight.data)
        layer.bias.data.uniform_(-1, 1)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers).eval(), (torch.rand(1, width),)


def mapped(count, width):
    """Return the same stack with memory-mapped weights."""
    model, args = linears(count, width)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.pt"
        torch.save(model.state_dict(), file)
        # The mapping stays valid after the file is deleted.
        model.load_state_dict(torch.load(file, mmap=True), assign=True)
    return model, args


MODELS = {
    "bert": bert,
    "vit": vit,
    "resnet": resnet,
    "whisper": whisper,
    "decoder": decoder,
    "decoder_f16": decoder_f16,
    "linears_500": lambda: linears(500, 64),
    "linears_1gb": lambda: linears(40, 2560),
    "mapped_1gb": lambda: mapped(40, 2560),
    "linears_4gb": lambda: linears(40, 5120),
}
CHAINS = {f"chain_{length}": length for length in (5_000, 10_000, 20_000)}
NAMES = (*MODELS, *CHAINS)


def exported(name):
    """Return the exported program of a workload and its arguments."""
    if name in CHAINS:
        return exported_chain(CHAINS[name]), (torch.ones(4),)
    torch.manual_seed(0)
    model, args = MODELS[name]()
    with torch.no_grad():
        return torch.export.export(model, args), args


def weight_bytes(program):
    """Return the bytes of parameters, buffers and constants, counting each storage once."""
    tensors = [*program.state_dict.values(), *program.constants.values()]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    }
    return sum(storages.values())
