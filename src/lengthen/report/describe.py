"""What the registry knows of a method, as data and as a page in the terminal."""

from typing import Any

import torch

from lengthen.backends import BACKENDS, refusal
from lengthen.core import Layout, Method, Scheme, Shape, build, methods, parse


def facts() -> list[dict[str, Any]]:
    """One object per registered method."""
    return [_facts(m, m.build(Shape())) for m in methods().values()]


def describe_spec(spec: str) -> dict[str, Any]:
    """The facts of one method, or of a composition such as `rope+window:tokens=64`."""
    shape = Shape()
    parts = parse(spec)
    if len(parts) == 1 and not parts[0][1]:
        return _facts(parts[0][0], build(spec, shape))
    return {"name": spec, "parts": [m.name for m, _ in parts], **_computed(build(spec, shape))}


def _facts(method: Method, scheme: Scheme) -> dict[str, Any]:
    return {
        "name": method.name,
        "family": method.family,
        "paper": None if method.paper is None else f"arXiv:{method.paper}",
        "summary": method.summary,
        "modifies": method.modifies,
        "options": [{"name": o.name, "default": o.default, "about": o.doc} for o in method.options],
        "variants": [dict(v) for v in method.variants],
        "limited": method.limited,
        **_computed(scheme),
    }


def _computed(scheme: Scheme) -> dict[str, Any]:
    """What follows from the stages themselves."""
    return {
        "acts_on": _acts_on(scheme),
        "relative": scheme.relative,
        "trains": any(p.requires_grad for p in scheme.parameters()),
        "parameters": sum(p.numel() for p in scheme.parameters()),
        "needs": scheme.needs.name.lower(),
        "causal": scheme.pattern.causal,
        "caching": "turned keys" if scheme.caches_turned_keys else "raw keys",
        "backends": _backends(scheme),
    }


def _acts_on(scheme: Scheme) -> dict[str, str]:
    """Stage -> what fills it."""
    single = ("positions", "embedding", "embedding_positions", "rotation", "temperature")
    filled = {s: type(getattr(scheme, s)).__name__ for s in single if getattr(scheme, s) is not None}
    for stage in ("terms", "value_terms"):
        if len(getattr(scheme, stage)):
            filled[stage.replace("terms", "term")] = " + ".join(type(t).__name__ for t in getattr(scheme, stage))
    return {**filled, "pattern": str(scheme.pattern)}


@torch.no_grad()
def _backends(scheme: Scheme) -> dict[str, str | None]:
    """Backend -> None where it serves the scheme, else the reason why not."""
    shape, tokens = Shape(), 8
    q, k = (torch.zeros(1, n, tokens, shape.head_size) for n in (shape.heads, shape.groups))
    streams = tuple(t.stream(torch.zeros(1, tokens, shape.width), None) for t in scheme.terms)
    plan = scheme.plan(q, k, k, Layout.plain(tokens), q_streams=streams, k_streams=streams)
    return {name: refusal(backend, plan) for name, backend in BACKENDS.items()}


def methods_table(rows: list[dict[str, Any]]):
    """A terminal table of `facts()`."""
    from rich.table import Table

    table = Table("method", "family", "paper", "relative", "trains", "caching", "summary")
    for r in rows:
        yes = lambda flag: "yes" if flag else "no"
        name = r["name"] + (" *" if r["modifies"] else "")
        table.add_row(name, r["family"], r["paper"] or "", yes(r["relative"]), yes(r["trains"]), r["caching"], r["summary"])
    table.caption = "* changes another encoding; compose with +, as in rope+window"
    return table


def description(about: dict[str, Any]):
    """A terminal page of `describe_spec()`."""
    from rich.table import Table

    table = Table("", "", show_header=False, title=about["name"], box=None)
    for key in ("summary", "family", "paper", "relative", "trains", "parameters", "needs", "causal", "caching"):
        if key in about:
            table.add_row(key, str(about[key]))
    for stage, filled in about["acts_on"].items():
        table.add_row(f"acts on {stage.replace('_', ' ')}", filled)
    for name, why in about["backends"].items():
        table.add_row(f"{name} backend", "serves it" if why is None else why)
    for option in about.get("options", ()):
        table.add_row(f"option {option['name']}", f"{option['about']} Default: {option['default']}")
    return table


def methods_markdown() -> str:
    """The registry as a page, `docs/methods.md`: `python -m lengthen.report.describe` prints it."""
    parts = ["# Methods\n\nGenerated from the registry by `python -m lengthen.report.describe`; do not edit.\n"]
    for about in facts():
        acts = "; ".join(f"{stage.replace('_', ' ')}: {filled}" for stage, filled in about["acts_on"].items())
        yes = lambda flag: "yes" if flag else "no"
        lines = [
            f"## {about['name']}\n\n{about['summary']}\n",
            f"- Family: {about['family']}. Paper: {about['paper'] if about['paper'] is not None else 'none'}.",
            f"- Acts on {acts}. Reads {about['needs']}.",
            f"- Relative: {yes(about['relative'])}. Trains: {yes(about['trains'])}. Caches {about['caching']}.",
            *[f"- `{o['name']}` (default `{o['default']}`): {o['about']}" for o in about["options"]],
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(methods_markdown(), end="")
