"""How far an injected chat's first token is from that of joint prefill."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.worker.engine.protocol import NextToken

_LEAST = 1e-6
"""Of a lumped probability: float32 log-probabilities of the others add up to 1 no better."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """kl: of joint prefill from the injected one, in nats. agrees: the same token is likeliest."""

    kl: float
    agrees: bool


def divergence(joint: NextToken, injected: NextToken) -> Divergence:
    """Over the tokens whose log-probability both have, with all others as one.

    Lumping can only make the figure smaller, and 0 still means the same distribution over these.
    """
    common = joint.logprobs.keys() & injected.logprobs.keys()
    pairs = [(joint.logprobs[token], injected.logprobs[token]) for token in common]
    kl = sum(math.exp(p) * (p - q) for p, q in pairs)
    rest_joint = _rest([p for p, _ in pairs])
    rest_injected = _rest([q for _, q in pairs])
    kl += rest_joint * math.log(rest_joint / rest_injected)
    return Divergence(max(0.0, kl), joint.token_id == injected.token_id)


def _rest(logprobs: list[float]) -> float:
    return max(_LEAST, 1.0 - math.fsum(map(math.exp, logprobs)))
