"""Full length: rows as long as the target. The yardstick, and the dearest."""

from dataclasses import dataclass

from .way import PLAIN, Way


@dataclass(frozen=True)
class FullLength(Way):
    """Every row has `target` tokens."""

    @property
    def row(self) -> int:
        return self.target

    @property
    def arms(self) -> tuple[str, ...]:
        return (PLAIN,)
