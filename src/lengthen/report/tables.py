"""The comparison as tables: in the terminal, and in Markdown."""

from lengthen.evaluate import Cell, Comparison

ARMS = (("none", ""), ("window", "window at L"), ("bca", "BCA"))
"""Controls in the order in which they stand under a method."""


def headline(found: Comparison, protocol: str = "fixed_targets") -> tuple[list[str], list[list[str]]]:
    """Header and rows: own loss at L, then the change at every other length, a row per method and control."""
    others = [n for n in found.lengths if n != found.train_length]
    header = ["method", f"at L = {found.train_length}", *[f"{n} ({n / found.train_length:g}x)" for n in others]]
    rows = []
    for method in found.methods:
        own = found.cell(method, found.train_length, protocol)
        if own is None:
            rows.append([method, _failure(found, method), *["" for _ in others]])
            continue
        for control, label in ARMS:
            cells = [found.cell(method, n, protocol, control) for n in others]
            if any(c is not None for c in cells):
                rows.append([f"  {label}" if label else method, "" if label else f"{own.loss.value:.3f}", *map(change, cells)])
    return header, rows


def change(cell: Cell | None) -> str:
    """+0.012 ±0.004, or why there is no number."""
    if cell is None:
        return ""
    if cell.reason is not None:
        return "no answer"
    if cell.change.low is None:
        return f"{cell.change.value:+.3f}"
    return f"{cell.change.value:+.3f} ±{(cell.change.high - cell.change.low) / 2:.3f}"


CELLS = (
    "Nats per token: first at the training length L, then the change from it, with half the width of its 95% paired bootstrap "
    "interval over documents and seeds."
)
CONTROLS_NOTE = "Below each method, the same weights under a window of L and under blockwise causal attention (BCA)."
CAPTION = f"Fixed targets: the same last tokens of each held-out document, read with growing context. {CELLS} {CONTROLS_NOTE}"


def comparison_table(found: Comparison):
    """The headline for the terminal."""
    from rich.table import Table

    header, rows = headline(found)
    table = Table(*header, caption=CAPTION)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row, style=None if not row[0].startswith(" ") else "dim")
    return table


def comparison_markdown(found: Comparison) -> str:
    """The headline of every protocol as Markdown."""
    protocols = dict.fromkeys(key[2] for key in found.cells)
    parts = [f"## {p.replace('_', ' ')}\n\n{_markdown(*headline(found, p))}" for p in protocols]
    title = f"# Trained at {found.train_length} tokens, read at {found.lengths[-1]}"
    note = f"{CELLS} {CONTROLS_NOTE}"
    return "\n\n".join([title, note, *parts]) + "\n"


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    line = lambda cells: (
        "| " + " | ".join(c.strip() if not c.startswith(" ") else f"&nbsp;&nbsp;{c.strip()}" for c in cells) + " |"
    )
    rule = "|---" + "|---:" * (len(header) - 1) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def _failure(found: Comparison, method: str) -> str:
    reasons = [r["training"]["reason"] for r in found.runs(method) if r["training"]["status"] != "done"]
    return f"failed: {reasons[0]}" if reasons else "not run"
