"""Intervals of means by bootstrap over questions, with a fixed seed: reports are reproducible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000
COVERED = 0.95
_SEED = 20261129
_BLOCK = 500
"""Resamples drawn at once: bounds the indices held to 500 rows of the questions."""


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the mean. For a paired difference pass the differences."""
    sample = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    means = np.concatenate(
        [
            sample[random.integers(0, len(sample), (_BLOCK, len(sample)))].mean(axis=1)
            for _ in range(RESAMPLES // _BLOCK)
        ]
    )
    low, high = np.quantile(means, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)
