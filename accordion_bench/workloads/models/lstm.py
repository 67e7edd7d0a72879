"""The word-level LSTM language model of WikiText-2 (Table 10), with tied input and output weights.

Shape suffixes: T time steps, B streams, V vocabulary, L layers, E hidden and embedding width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accordion_bench.errors import UserError

Hidden = tuple[Tensor, Tensor]  # (h_LBE, c_LBE)


def build(*, vocabulary: int, layers: int = 3, hidden: int = 650, dropout: float = 0.4) -> nn.Module:
    """An LSTM language model of 651 * vocabulary + 3,385,200 * layers parameters (at the default width).

    The paper calls it a 2-layer LSTM; the authors' code has 3 layers. The count of Table 10, 28,949,319, fits both:
    2 layers with 34,069 words, 3 layers with 28,869. The latter is near the lower-cased vocabulary of WikiText-2.

    Args:
        vocabulary: number of words.
        layers: of the LSTM; 2 (the paper's text) or 3 (the authors' code).
        hidden: width of embedding and hidden state.
        dropout: rate on the embedding, between layers and on the output.

    Raises:
        UserError: layers or hidden below 1, or dropout outside [0, 1).
    """
    if layers < 1:
        raise UserError(
            f"model.layers must be a whole number >= 1, got {layers}; the paper says 2, the authors' code 3"
        )
    if hidden < 1:
        raise UserError(f"model.hidden must be a whole number >= 1, got {hidden}; the paper's is 650")
    if not 0 <= dropout < 1:
        raise UserError(f"model.dropout must be a rate in [0, 1), got {dropout}; the authors' code has 0.4")
    return LSTMLanguageModel(vocabulary, layers, hidden, dropout)


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTM, and an output layer whose weight is the embedding's (Press and Wolf 2017).

    Embedding weights start uniform in [-0.1, 0.1] and the output bias at 0, as in the authors' code: PyTorch's default
    embedding, N(0, 1), would make the tied output layer's first logits far too large. The LSTM has PyTorch's default.
    """

    def __init__(self, vocabulary: int, layers: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, hidden)
        # With one layer there is nothing between layers, and nn.LSTM would warn.
        self.lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout if layers > 1 else 0.0)
        self.output = nn.Linear(hidden, vocabulary)
        self.output.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, tokens_TB: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """tokens (T, B) int64 -> logits (T, B, V) and the hidden state after the last step.

        The caller detaches `hidden` between batches, which truncates back-propagation.
        """
        output_TBE, hidden = self.lstm(self.dropout(self.embedding(tokens_TB)), hidden)
        return self.output(self.dropout(output_TBE)), hidden

    def first_hidden(self, batch: int) -> Hidden:
        """Zeros for `batch` streams: (h, c), each (L, batch, E), on the model's device and of its type."""
        zeros_LBE = self.embedding.weight.new_zeros(self.lstm.num_layers, batch, self.lstm.hidden_size)
        return zeros_LBE, torch.zeros_like(zeros_LBE)
