"""ABF: adjusted base frequency (Roziere et al. 2023, arXiv:2308.12950, section 2.4; Xiong et al. 2023, arXiv:2309.16039)."""

from lengthen.core import Geometric, Scheme, method

from .rope import rotary_scheme


@method("abf", family="rescaling", paper="2309.16039", variants=({"adjusted": 1e6, "fraction": 0.5, "interleaved": False},))
def abf(head_size: int, *, adjusted: float = 500_000.0, fraction: float = 1.0, interleaved: bool = True) -> Scheme:
    """RoPE of another base, meant for continued training.

    Without training it is NTK-aware scaling by (adjusted / trained base)^((R-2)/R).

    adjusted: the new base, radians per token: 500 000 in Xiong et al., 1 000 000 in Code Llama.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(Geometric(adjusted), head_size, fraction, interleaved)
