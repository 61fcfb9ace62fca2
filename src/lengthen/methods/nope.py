"""NoPE: no positional encoding (Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466)."""

from lengthen.core import Scheme, method


@method("nope", family="none", paper="2305.19466")
def nope() -> Scheme:
    """No positional encoding: order reaches the model through the causal mask alone.

    A bidirectional model without positions cannot tell orders apart.
    """
    return Scheme()
