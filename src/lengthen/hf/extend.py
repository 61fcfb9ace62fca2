"""extend(): another position scheme in a pretrained decoder, proven on the checkpoint's own before anything changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from lengthen.core import LengthenError, Refusal, Scheme, UsageError
from lengthen.core.errors import require_count

from .asked import asked_for
from .attention import CARRIED
from .bounded import BoundedCache, bounded_cache
from .install import Installed
from .interpolate import MARK, Interpolated, Kind, interpolate, kind_of
from .kept import kept
from .lengths import Lengths
from .probe import TOKENS as PROBE
from .probe import allowed, answers, gap
from .request import Request, own_schemes, wanted_schemes
from .rotary import Turning
from .route import ROUTES, Lowered, lower
from .survey import Survey, require_model, survey
from .target import Tokens, target


@dataclass
class Extension:
    """A model under another scheme, and the way back. As a context manager it restores at the end."""

    model: PreTrainedModel
    request: Request
    schemes: Mapping[str | None, Scheme]
    """By layer type; None where the model has one spectrum."""
    route: str
    """'rotary', 'turned' or 'raw', see `route`; 'bias', 'table' or 'buckets' of models that do not turn."""
    layers: int
    """Attention layers that take part; of models that do not turn, the modules that were changed."""
    turned: int
    """Those of them that turn queries and keys, or were changed."""
    lengths: Lengths
    """What was decided of factor, trained length and target, and why."""
    gap: float
    """How far the checkpoint's own logits were reproduced on this route, in units of their deviation."""
    asked: Tokens = None
    """The length that was asked for, or one for each row; None: none was."""
    _options: dict[str, Any] = field(repr=False, default_factory=dict)
    _installed: Installed | Interpolated | None = field(repr=False, default=None)

    @property
    def tokens(self) -> int:
        """The length that the model is now meant for."""
        return self.lengths.maximum

    @property
    def installed(self) -> Installed | Interpolated | None:
        """What was changed in the model; None once it is restored."""
        return self._installed

    @property
    def route_asked(self) -> str | None:
        """The route that was asked for; None: the cheapest."""
        return self._options.get("route")

    @property
    def original_asked(self) -> int | None:
        """The trained length, where it was given."""
        return self._options.get("original")

    def restore(self) -> PreTrainedModel:
        """The model as it was, bit by bit: modules, configuration, attention."""
        if self._installed is None:
            raise UsageError("This extension has been restored already.")
        self._installed.remove()
        self._installed = None
        return self.model

    def at(self, tokens: Tokens) -> "Extension":
        """The same request settled for another length, or for one of each row; caches filled before are refused from now on.

        Raises as `extend` does, and leaves this extension in place.
        """
        model = self.restore()
        try:
            return extend(model, self.request, tokens=tokens, **self._options)
        except LengthenError:
            self._installed = extend(model, self.request, tokens=self.asked, **self._options)._installed
            raise

    def cache(self) -> BoundedCache:
        """An empty cache that keeps only what the scheme can still show: model.generate(..., cache=extension.cache()).

        Raises Refusal where some layer sees the whole text.
        """
        if self._installed is None:
            raise UsageError("This extension was restored; the model makes caches of its own.")
        if isinstance(self._installed, Interpolated):
            raise Refusal(f"{self.request!r} shows the whole text, so no cache of it can stay small.")
        carried = (layer.module.__dict__.get(CARRIED) for layer in self._installed.seen.layers)
        return bounded_cache([kept(c.scheme) if c is not None else None for c in carried])

    def __enter__(self) -> "Extension":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._installed is not None:
            self.restore()

    def __str__(self) -> str:
        changed = "attention layers turn by the new scheme" if self.route in ROUTES else "modules were changed"
        return (
            f"{type(self.model).__name__} for {self.tokens} tokens: {self.turned} of {self.layers} {changed}, on the route "
            f"{self.route!r}; its own logits were reproduced to {self.gap:.1e} of their deviation. {self.lengths}"
        )


def extend(
    model: PreTrainedModel,
    request: Request | None = None,
    *,
    method: Request | None = None,
    factor: float | None = None,
    tokens: Tokens = None,
    original: int | None = None,
    route: str | None = None,
    backend: str | None = None,
) -> Extension:
    """Gives a decoder of transformers another position scheme, in place.

    request: a spec such as 'self_extend:group=4' or 'window+log_n:clip=True' (methods that act on an encoding are put onto
        the checkpoint's own; base, pairing and rotated share of others are taken from it), a Scheme, taken as it is, a rule of
        frequencies, or a mapping from layer types to these where layers have spectra of their own.
    method: the same by name, for extend(model, method="yarn", factor=4).
    factor: the length to reach over the trained one, instead of a factor in the spec; see `asked_for`.
    tokens: the length to reach; it settles rules that depend on the length, and factors that are not given. A sequence gives
        each row of the batches to come a length of its own, and so its own frequencies. See `target` for what is decided.
    original: the trained length, where the configuration does not say it or says it wrongly.
    route: None takes the cheapest that is exact; see `route`. backend: of our attention; None lets it choose.

    Before anything is changed, the same route reproduces the checkpoint's own logits under its own frequencies. Raises
    Refusal with the reason, the model untouched, for what cannot be extended, and UsageError for what cannot be meant.
    Layers that the checkpoint leaves without positions stay so, and keep its own mask.
    """
    _require_untouched(model)
    kind = kind_of(method if request is None else request)
    if kind is not None:
        request, tokens = asked_for(model.config, request, method, factor, tokens, original)
        return _interpolated(model, request, kind, tokens, original)
    seen = survey(model)
    request, tokens = asked_for(model.config, request, method, factor, tokens, original)
    seen = _trained_on(seen, original)
    first = next(iter(request), None) if isinstance(request, Mapping) else seen.types[0]
    own_lengths = seen.spectra[first if first in seen.types else seen.types[0]].lengths
    lengths = target(request, tokens, own_lengths.original, model.config.max_position_embeddings)
    wanted = wanted_schemes(seen, request, tokens)
    lowered = _lower(wanted, seen.channels, route)
    # Frequencies that depend on the length are those of the probe's length here.
    own = own_schemes(seen, PROBE)
    found = _reproduce(seen, _lower(own, seen.channels, _common(lowered)), backend)
    installed = Installed(seen, lowered, backend)
    try:
        installed.configure(wanted, lengths.maximum)
    except BaseException:
        installed.remove()
        raise
    turned = sum(layer.turned for layer in seen.layers)
    options = {"original": original, "route": route, "backend": backend}
    route = _common(lowered)
    return Extension(model, request, wanted, route, len(seen.layers), turned, lengths, found, tokens, options, installed)


def _interpolated(model: PreTrainedModel, request: str, kind: Kind, tokens: Tokens, original: int | None) -> Extension:
    """Extends what does not turn: biases, tables, buckets."""
    installed, scheme, lengths, found = interpolate(model, request, kind, tokens, original)
    layers, options = installed.changed.layers, {"original": original}
    return Extension(model, request, {None: scheme}, kind.route, layers, layers, lengths, found, tokens, options, installed)


def own_scheme(model: PreTrainedModel, *, layer_type: str | None = None, tokens: int | None = None) -> Scheme:
    """How the checkpoint itself turns queries and keys: what to compose other stages with, `compose(own_scheme(m), ...)`."""
    _require_untouched(model)
    own = own_schemes(survey(model), tokens)
    if layer_type not in own:
        kinds = ", ".join(repr(k) for k in own)
        raise UsageError(f"The spectra of {type(model).__name__} belong to the layer types {kinds}, got {layer_type!r}.")
    return own[layer_type]


def _trained_on(seen: Survey, original: int | None) -> Survey:
    """The survey with another trained length; frequencies that the configuration declares stay as they are."""
    if original is None:
        return seen
    require_count("extend", "original", original, "tokens")
    lengths = lambda old: replace(old, original=original, why=f"The trained length of {original} tokens was given.")
    return replace(seen, spectra={kind: replace(s, lengths=lengths(s.lengths)) for kind, s in seen.spectra.items()})


def _require_untouched(model: nn.Module) -> None:
    require_model(model)
    if any(isinstance(m, Turning) for m in model.modules()) or MARK in model.__dict__:
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
