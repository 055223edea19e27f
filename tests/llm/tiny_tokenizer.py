"""A fast tokenizer of single characters with a chat template, built without any download."""

from __future__ import annotations

UNKNOWN, END, START_TURN, END_TURN, THINK = range(95, 100)
SPECIAL = ["<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer():
    """Return a tokenizer: the printable ASCII characters are 0 to 94, special tokens follow."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {chr(code): code - 32 for code in range(32, 127)}
    vocabulary |= {text: 95 + number for number, text in enumerate(SPECIAL)}
    vocabulary["\n"] = 100
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[0]))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        additional_special_tokens=SPECIAL[2:],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
