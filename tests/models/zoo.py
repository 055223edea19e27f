"""Architectures built from their configurations with random weights, small and unmodified."""

from __future__ import annotations

import torch
import transformers
from torch import nn
from torch.export import Dim


class Logits(nn.Module):
    """A Hugging Face model called as its users call it, returning tensors only."""

    def __init__(self, model, **flags):
        super().__init__()
        self.model, self.flags = model, flags

    def forward(self, *args):
        return self.model(*args, return_dict=False, **self.flags)[0]


def _tokens(*shape):
    return torch.randint(0, 96, shape)


def bert():
    config = transformers.BertConfig(
        vocab_size=96,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    model = Logits(transformers.BertModel(config))
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    return model, (_tokens(2, 9), mask)


def vit():
    config = transformers.ViTConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return Logits(transformers.ViTModel(config)), (torch.randn(2, 3, 32, 32),)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck"
    )
    return Logits(transformers.ResNetModel(config)), (torch.randn(2, 3, 48, 48),)


def mobilenet():
    config = transformers.MobileNetV2Config(depth_multiplier=0.35, image_size=64)
    return Logits(transformers.MobileNetV2Model(config)), (torch.randn(1, 3, 64, 64),)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return Logits(transformers.LlamaForCausalLM(config), use_cache=False), (_tokens(2, 9),)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        hidden, _ = self.rnn(x)
        return self.head(hidden)


def lstm():
    return Recurrent(nn.LSTM), (torch.randn(2, 7, 6),)


def gru():
    return Recurrent(nn.GRU), (torch.randn(2, 7, 6),)


MODELS = {f.__name__: f for f in (bert, vit, resnet, mobilenet, llama, lstm, gru)}

_BATCH = {0: Dim("batch", min=2, max=64)}
_SEQUENCE = {0: Dim("batch", min=2, max=64), 1: Dim("sequence", min=2, max=64)}

# What of each model's inputs may vary, and other sizes to try.
DYNAMIC = {
    "bert": ((_SEQUENCE, _SEQUENCE), lambda: (_tokens(3, 5), torch.ones(3, 5, dtype=torch.int64))),
    "vit": ((_BATCH,), lambda: (torch.randn(3, 3, 32, 32),)),
    "resnet": (
        ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},),
        lambda: (torch.randn(3, 3, 64, 40),),
    ),
    "llama": ((_SEQUENCE,), lambda: (_tokens(3, 5),)),
    "lstm": ((_SEQUENCE,), lambda: (torch.randn(3, 11, 6),)),
    "gru": ((_SEQUENCE,), lambda: (torch.randn(3, 11, 6),)),
}
