"""What extend() changes in a model, each change with its way back."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from lengthen.core import Scheme
from lengthen.core.scheme import meet
from lengthen.methods.window import Window

from .attention import CARRIED, NAME, Carried
from .positions import no_documents, rows_of_their_own
from .rotary import Turning
from .route import Lowered
from .rows import ByRow
from .stamp import Stamp
from .survey import Layer, Survey
from .vanilla import rope_parameters


class Installed:
    """Lowered schemes at work in a model, until `remove`; also when nobody holds this record any longer."""

    def __init__(self, seen: Survey, lowered: Mapping[str | None, Lowered], backend: str | None):
        self.model, self.seen = seen.model, seen
        self.before: dict[str, Any] = {}
        """Entries of the configuration that were changed, as they were."""
        self.ours = any(low.route != "rotary" for low in lowered.values())
        with ExitStack() as self._undo:
            self._replace(seen, lowered)
            self._hook(seen.slots[0].parent, lowered)
            if self.ours:
                self._attend(seen, lowered, backend)
            # Reached without an error: what has been done stays until `remove`.
            self._undo = self._undo.pop_all()

    def _replace(self, seen: Survey, lowered: Mapping[str | None, Lowered]) -> None:
        rotations = {kind: low.rotation for kind, low in lowered.items()}
        changes = {kind: low.change for kind, low in lowered.items()}
        turning = Turning(rotations, seen.table, seen.channels, changes)
        for slot in seen.slots:
            setattr(slot.parent, slot.name, turning)
            self._undo.callback(setattr, slot.parent, slot.name, slot.module)

    def _hook(self, decoder: nn.Module, lowered: Mapping[str | None, Lowered]) -> None:
        stamp, look = Stamp(), rows_of_their_own if self.ours else no_documents
        rotations = (r for low in lowered.values() for r in (low.rotation, low.scheme.rotation))
        rows = [r.look for r in rotations if isinstance(r, ByRow)]
        # The stamp first: what comes next makes room in a cache, which then no longer tells how many tokens it holds.
        for hook in (stamp.before, *rows, look):
            self._undo.callback(decoder.register_forward_pre_hook(hook, with_kwargs=True).remove)
        self._undo.callback(decoder.register_forward_hook(stamp.after).remove)

    def _attend(self, seen: Survey, lowered: Mapping[str | None, Lowered], backend: str | None) -> None:
        made: dict[tuple, Carried] = {}
        for layer in seen.layers:
            key = (layer.layer_type, layer.turned, layer.window)
            if key not in made:
                made[key] = _carried(layer, lowered, backend)
            # Past nn.Module's own __setattr__: a scheme is not to become part of the model's state dict.
            layer.module.__dict__[CARRIED] = made[key]
            self._undo.callback(layer.module.__dict__.pop, CARRIED)
        self._undo.callback(seen.model.set_attn_implementation, seen.model.config._attn_implementation)
        seen.model.set_attn_implementation(NAME)

    def configure(self, schemes: Mapping[str | None, Scheme], tokens: int) -> None:
        """The configuration says what the model now is: its length, and its frequencies where these alone have changed."""
        config: PreTrainedConfig = self.model.config
        changed = {"max_position_embeddings": tokens}
        static = not any(isinstance(s.rotation, ByRow) for s in schemes.values())
        if not self.ours and static:
            changed["rope_parameters"] = rope_parameters(config, schemes, tokens)
        for name, value in changed.items():
            self.before[name] = getattr(config, name)
            self._undo.callback(setattr, config, name, self.before[name])
            setattr(config, name, value)

    def remove(self) -> None:
        """Undoes everything, in the reverse order."""
        self._undo.close()


def _carried(layer: Layer, lowered: Mapping[str | None, Lowered], backend: str | None) -> Carried:
    """What a layer runs: the scheme within its own sliding window; without positions, the model's own mask alone."""
    low = lowered[layer.layer_type] if layer.turned else None
    scheme = low.scheme if low is not None else Scheme()
    own = [] if layer.window is None else [Window(layer.window)]
    pattern = meet([scheme.pattern, *own]) if own else scheme.pattern
    return Carried(scheme.with_pattern(pattern), low is not None and low.keys_turned, backend)
