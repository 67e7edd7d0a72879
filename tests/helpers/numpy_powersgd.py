"""PowerSGD with error feedback as written in Vogels et al. 2019 (Algorithms 1 and 2): loops, float64, no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class NumpyPowerSGD:
    """One gradient matrix per name and worker.

    Args:
        q: the first Q (m, r) of every matrix that is compressed.
        local: remember M - P Q_w^T with the worker's own Q_w (the text) instead of M - P Q^T (the reference code).
    """

    def __init__(self, q: dict[str, Matrix], local: bool) -> None:
        self.q = {name: value.copy() for name, value in q.items()}
        self.local = local
        self.errors: dict[tuple[str, int], Matrix] = {}

    def step(self, gradients: list[dict[str, Matrix]]) -> dict[str, Matrix]:
        """The decompressed update of every matrix; gradients[w][name] is worker w's."""
        workers = range(len(gradients))
        updates = {}
        for name in gradients[0]:
            corrected = [gradients[w][name] + self.errors.get((name, w), 0.0) for w in workers]  # Alg. 2, line 5
            if name not in self.q:
                updates[name] = sum(corrected) / len(gradients)
                self.errors.update({(name, w): np.zeros_like(corrected[w]) for w in workers})
                continue
            p = gram_schmidt(sum(m @ self.q[name] for m in corrected) / len(gradients))  # Alg. 1, lines 2-4
            own = [m.T @ p for m in corrected]
            self.q[name] = sum(own) / len(gradients)  # lines 5-6
            updates[name] = p @ self.q[name].T
            for w in workers:
                sent = p @ own[w].T if self.local else updates[name]
                self.errors[name, w] = corrected[w] - sent  # Alg. 2, line 8
        return updates


def gram_schmidt(matrix: Matrix) -> Matrix:
    """Orthonormal columns, one after the other."""
    columns: list[Matrix] = []
    for column in matrix.T:
        for _ in range(2):  # twice is enough (Kahan)
            for earlier in columns:
                column = column - (earlier @ column) * earlier
        columns.append(column / np.sqrt(column @ column))
    return np.stack(columns, axis=1)
