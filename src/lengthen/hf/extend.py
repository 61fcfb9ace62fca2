"""extend(): another position scheme in a pretrained decoder, proven on the checkpoint's own before anything changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from lengthen.core import Refusal, Scheme, UsageError

from .install import Installed
from .probe import TOKENS as PROBE
from .probe import allowed, answers, gap
from .request import Request, own_schemes, target_length, wanted_schemes
from .rotary import Turning
from .route import Lowered, lower
from .survey import Survey, survey


@dataclass
class Extension:
    """A model under another scheme, and the way back. As a context manager it restores at the end."""

    model: PreTrainedModel
    request: Request
    schemes: Mapping[str | None, Scheme]
    """By layer type; None where the model has one spectrum."""
    route: str
    """'rotary', 'turned' or 'raw'; see `route`."""
    layers: int
    """Attention layers that take part."""
    turned: int
    """Those of them that turn queries and keys."""
    tokens: int
    """The length that the model is now meant for."""
    gap: float
    """How far the checkpoint's own logits were reproduced on this route, in units of their deviation."""
    _options: dict[str, Any] = field(repr=False, default_factory=dict)
    _installed: "Installed | None" = field(repr=False, default=None)

    def restore(self) -> PreTrainedModel:
        """The model as it was, bit by bit: modules, configuration, attention."""
        if self._installed is None:
            raise UsageError("This extension has been restored already.")
        self._installed.remove()
        self._installed = None
        return self.model

    def at(self, tokens: int) -> "Extension":
        """The same scheme settled for another length; caches made before belong to the old one."""
        return extend(self.restore(), self.request, tokens=tokens, **self._options)

    def __enter__(self) -> "Extension":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._installed is not None:
            self.restore()

    def __str__(self) -> str:
        return (
            f"{type(self.model).__name__} for {self.tokens} tokens: {self.turned} of {self.layers} attention layers turn by the new "
            f"scheme, on the route {self.route!r}; its own logits were reproduced to {self.gap:.1e} of their deviation."
        )


def extend(
    model: PreTrainedModel,
    request: Request,
    *,
    tokens: int | None = None,
    route: str | None = None,
    backend: str | None = None,
) -> Extension:
    """Gives a decoder of transformers another position scheme, in place.

    request: a spec such as 'self_extend:group=4' or 'window+log_n:clip=True' (methods that act on an encoding are put onto
        the checkpoint's own; base, pairing and rotated share of others are taken from it), a Scheme, taken as it is, or
        a mapping from layer types to these where layers have spectra of their own.
    tokens: the length to reach; it settles rules that depend on the length, and factors that are not given.
    route: None takes the cheapest that is exact; see `route`. backend: of our attention; None lets it choose.

    Before anything is changed, the same route reproduces the checkpoint's own logits under its own frequencies. Raises
    Refusal with the reason, the model untouched, for what cannot be extended, and UsageError for what cannot be meant.
    Layers that the checkpoint leaves without positions stay so, and keep its own mask.
    """
    _require_untouched(model)
    seen = survey(model)
    reach = target_length(model.config, request, tokens)
    wanted = wanted_schemes(seen, request, tokens)
    lowered = _lower(wanted, seen.channels, route)
    # Frequencies that depend on the length are those of the probe's length here.
    own = own_schemes(seen, PROBE)
    found = _reproduce(seen, _lower(own, seen.channels, _common(lowered)), backend)
    installed = Installed(seen, lowered, backend)
    try:
        installed.configure(wanted, reach)
    except BaseException:
        installed.remove()
        raise
    turned = sum(layer.turned for layer in seen.layers)
    options = {"route": route, "backend": backend}
    return Extension(model, request, wanted, _common(lowered), len(seen.layers), turned, reach, found, options, installed)


def own_scheme(model: PreTrainedModel, *, layer_type: str | None = None, tokens: int | None = None) -> Scheme:
    """How the checkpoint itself turns queries and keys: what to compose other stages with, `compose(own_scheme(m), ...)`."""
    _require_untouched(model)
    own = own_schemes(survey(model), tokens)
    if layer_type not in own:
        kinds = ", ".join(repr(k) for k in own)
        raise UsageError(f"The spectra of {type(model).__name__} belong to the layer types {kinds}, got {layer_type!r}.")
    return own[layer_type]


def _require_untouched(model: nn.Module) -> None:
    if any(isinstance(m, Turning) for m in model.modules()):
        raise UsageError(f"This {type(model).__name__} is extended already. Call restore() on its Extension first.")


def _lower(schemes: Mapping[str | None, Scheme], channels: int, route: str | None) -> dict[str | None, Lowered]:
    """All on a common kind of attention: transformers' own, only where every spectrum can do without ours."""
    found = {kind: lower(s, channels, route) for kind, s in schemes.items()}
    if route is not None or len({low.route == "rotary" for low in found.values()}) == 1:
        return found
    return {kind: lower(s, channels, "turned") if found[kind].route == "rotary" else found[kind] for kind, s in schemes.items()}


def _common(lowered: Mapping[str | None, Lowered]) -> str:
    """The dearest route of all."""
    routes = {low.route for low in lowered.values()}
    return next(r for r in ("raw", "turned", "rotary") if r in routes)


def _reproduce(seen: Survey, own: Mapping[str | None, Lowered], backend: str | None) -> float:
    """The gap to the checkpoint's own logits on this route. Raises Refusal where it is more than rounding."""
    expected = answers(seen.model)
    most = allowed(seen.model, expected)
    installed = Installed(seen, own, backend)
    try:
        found = gap(answers(seen.model), expected)
    finally:
        installed.remove()
    if found > most:
        raise Refusal(
            f"{type(seen.model).__name__}: under its own frequencies, our way gives logits that are {found:.1e} of their "
            f"deviation away from the model's, {most:.0e} is allowed in {seen.model.dtype}. It does something to "
            "positions that is not known here; the model is untouched."
        )
    return found
