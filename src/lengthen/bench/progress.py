"""One bar over all rows, with what is being measured."""

from lengthen.recipes.pool import Bars, Tick


class Bar:
    """A context that yields `progress(done, total, what)`."""

    def __init__(self, title: str):
        self.title, self.bars = title, Bars()

    def __enter__(self):
        report = self.bars.__enter__()
        return lambda done, total, what: report(Tick(self.title, "rows", done, total, what))

    def __exit__(self, *failure: object) -> None:
        self.bars.__exit__(*failure)
