"""Save two small models with `torch.export.save`; the file names have the version of torch."""

import sys
from pathlib import Path

import torch


class Picture(torch.nn.Module):
    """Convolution, batch norm and linear layer, with a buffer that counts the calls."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return torch.softmax(self.linear(y), -1)


class Sequence(torch.nn.Module):
    """Embedding, attention and LSTM."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(11, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = torch.nn.LSTM(8, 6, batch_first=True)

    def forward(self, ids):
        x = self.embedding(ids)
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.lstm(y)[0]


def main(folder: Path) -> None:
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    batch = torch.export.Dim("batch", min=1, max=8)
    for name, model, example, argument in (
        ("picture", Picture(), torch.randn(2, 3, 8, 8), "x"),
        ("sequence", Sequence(), torch.arange(6).reshape(2, 3), "ids"),
    ):
        sizes = {argument: {0: batch}}
        exported = torch.export.export(model.eval(), (example,), dynamic_shapes=sizes)
        torch.export.save(exported, folder / f"{name}-torch-{version}.pt2")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
