"""StreamingLLM: a window and the first tokens, at positions inside the cache (Xiao et al. 2023, arXiv:2309.17453)."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Beyond, Branch, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Both

from .sinks import Sinks
from .window import Window


@dataclass(frozen=True)
class Capped:
    """min(pos, most)."""

    most: int

    def __call__(self, pos: Tensor) -> Tensor:
        return pos.clamp_max(self.most)


@method("streaming_llm", family="remapping", paper="2309.17453", modifies=True, variants=({"sinks": 1, "window": 5},))
def streaming_llm(train_length: int, *, sinks: int = 4, window: int | None = None) -> Scheme:
    """A query sees a window and the first tokens, numbered 0, 1, 2, ... in what is kept.

    With N = sinks + window tokens kept, the query stands at min(i, N - 1): the window keeps its true distances, and first
    token j is min(i, N - 1) - j away (section 3.2). Reading a text at once gives what reading it token by token gives; that
    is not the same as computing each window afresh, since kept values have seen older tokens. Our own decoder keeps tokens
    that are no longer seen; for models of transformers, `Extension.cache()` makes a cache that drops them.

    sinks: first tokens that stay visible.
    window: visible tokens up to the query, the query included; by default what makes `sinks` + `window` the training length.
    """
    width = window if window is not None else max(1, train_length - sinks)
    require_count("streaming_llm", "sinks", sinks, "tokens")
    require_count("streaming_llm", "window", width, "tokens")
    far = Branch(Both(Beyond(width), Sinks(sinks)), Capped(sinks + width - 1))
    return Scheme(branches=(Branch(Window(width), relative=True), far))
