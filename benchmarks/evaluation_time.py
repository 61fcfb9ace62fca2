"""Wall time of evaluation: the models of a comparison, read at six lengths by every protocol under every control.

    python benchmarks/evaluation_time.py [--run runs/demo] [--seed 0]

Start it after `make demo`. Models are read side by side, one process per core, as `lengthen compare` does.
"""

import argparse
from pathlib import Path
from time import perf_counter

from lengthen.recipes.pool import Report, cores, run_all

METHODS = ("sinusoidal", "rope", "xpos", "t5", "alibi", "kerple")
LENGTHS = (64, 128, 256, 512, 1024, 2048)


def read(folder: Path, report: Report) -> tuple[str, int, float]:
    """Evaluates one model; returns its name, the tokens read and the seconds."""
    from lengthen.data import prepare
    from lengthen.evaluate import evaluate
    from lengthen.models.store import load_decoder

    data = prepare("demo", min_held_tokens=LENGTHS[-1] + 1)
    model = load_decoder(folder / "model")
    found = evaluate(
        model, [d.ids for d in data.held], train_length=128, lengths=LENGTHS, token_bytes=data.tokenizer.token_bytes
    )
    return folder.name, found.tokens_read, found.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folders = [args.run / f"{m}-L128-s{args.seed}" for m in METHODS]
    began = perf_counter()
    for result in run_all(read, [(f,) for f in folders], cores(), show=False):
        if isinstance(result, Exception):
            raise result
        name, tokens, seconds = result
        print(f"{name:24} {tokens:>10,} tokens {seconds:6.1f} s")
    print(f"{len(folders)} models x {len(LENGTHS)} lengths x 3 protocols with 2 controls: {perf_counter() - began:.1f} s wall")


if __name__ == "__main__":
    main()
