"""Train a `transformers` Llama on one text, and generate the text in torch and in Core AI.

Needs the `llm` extra and no network. The conversion is in `main`.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from coreai_torch import llm

# torch.export warns about a deprecated call inside torch.
warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)

TEXT = b"""In the beginning the model knew nothing. It read one page, again and again, \
until the next letter held no surprise."""
PROMPTS = [TEXT[:1], TEXT[:6], TEXT[:45]]
NEW = 32


def trained(steps: int = 80) -> LlamaForCausalLM:
    """Train a model on one text until it memorizes it; its tokens are bytes."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    tokens = torch.tensor([list(TEXT)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    return model.eval()


def main() -> bool:
    """Return whether Core AI generated the tokens of transformers for every prompt."""
    model = trained()
    with tempfile.TemporaryDirectory() as folder:
        program = llm.convert(model, max_length=128)
        asset = program.save_asset(Path(folder) / "llama.aimodel")
        generator = llm.Generator(asset)
    equal = True
    for prompt in PROMPTS:
        tokens = torch.tensor([list(prompt)])
        by_coreai = generator.generate(tokens, max_new_tokens=NEW)
        by_torch = model.generate(tokens, max_new_tokens=NEW, do_sample=False)
        equal = equal and torch.equal(by_coreai, by_torch)
        print(f"{prompt.decode()}|{bytes(by_coreai[0].tolist()[len(prompt) :]).decode()}")
    print(f"{NEW} tokens after each of {len(PROMPTS)} prompts,", end=" ")
    print("equal to those of transformers" if equal else "NOT equal to those of transformers")
    return equal


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
