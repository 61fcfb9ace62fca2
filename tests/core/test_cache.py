"""The cache: appending in pieces holds what appending at once holds."""

import pytest
import torch

from lengthen.core import Cache, LayerCache, Scheme, UsageError, build
from lengthen.core.cache import Buffer


def pieces(total, seed):
    g, left = torch.Generator().manual_seed(seed), total
    while left:
        n = min(left, int(torch.randint(1, 40, (1,), generator=g)))
        yield slice(total - left, total - left + n)
        left -= n


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_buffer_holds_everything_in_order(dim, seed):
    x = torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(seed))
    buffer = Buffer(dim)
    for part in pieces(300, seed):
        held = buffer.append(x[(slice(None),) * dim + (part,)])
        assert torch.equal(held, x[(slice(None),) * dim + (slice(0, part.stop),)])
        assert torch.equal(buffer.view(), held)


def test_a_buffer_grows_by_doubling():
    """1000 single appends are served by 5 allocations: 64, 128, 256, 512, 1024."""
    buffer, sizes = Buffer(1), set()
    for n in range(1000):
        buffer.append(torch.full((1, 1), n))
        sizes.add(buffer.data.shape[1])
    assert sizes == {64, 128, 256, 512, 1024}
    assert buffer.view()[0].tolist() == list(range(1000))


@pytest.mark.parametrize(("padding", "documents"), [(False, False), (True, False), (False, True), (True, True)])
def test_coordinates_of_pieces_are_those_of_the_whole(padding, documents):
    """Order counted by hand: real tokens of each document from 0."""
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50, (3, 120), generator=g)
    valid = (torch.arange(120) >= torch.tensor([[0], [9], [70]])) if padding else None
    doc = (torch.rand(3, 120, generator=g) < 0.1).long().cumsum(1) if documents else None
    expected = []
    for row in range(3):
        seen, line = {}, []
        for t in range(120):
            d, real = int(doc[row, t]) if documents else 0, valid is None or bool(valid[row, t])
            line.append(seen.get(d, 0) if real else -1)
            seen[d] = seen.get(d, 0) + real
        expected.append(line)
    cache, start, cut = Cache([Scheme()]), 0, lambda t, part: None if t is None else t[:, part]
    for part in pieces(120, 1):
        new, every, history = cache.extend(ids[:, part], cut(valid, part), cut(doc, part))
        assert torch.equal(history, ids[:, : part.stop]) and cache.length == part.stop
        assert every.idx.expand(3, -1).tolist() == [line[: part.stop] for line in expected]
        assert new.idx.expand(3, -1).tolist() == [line[start : part.stop] for line in expected]
        start = part.stop


def test_padding_given_for_some_of_the_pieces_only():
    cache = Cache([Scheme()])
    cache.extend(torch.zeros(2, 3, dtype=torch.long), None, None)
    new, every, _ = cache.extend(torch.zeros(2, 2, dtype=torch.long), torch.tensor([[True, True], [True, False]]), None)
    assert every.idx.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 3, -1]] and new.idx.tolist() == [[3, 4], [3, -1]]
    new, every, _ = cache.extend(torch.zeros(2, 1, dtype=torch.long), None, None)
    assert new.idx.tolist() == [[5], [4]] and every.valid.sum(1).tolist() == [6, 5]


def test_tokens_without_documents_continue_the_last_document():
    cache = Cache([Scheme()])
    cache.extend(torch.zeros(2, 4, dtype=torch.long), None, torch.tensor([[0, 0, 1, 1], [0, 0, 0, 5]]))
    new, every, _ = cache.extend(torch.zeros(2, 2, dtype=torch.long), None, None)
    assert every.doc.tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 5, 5, 5]] and new.idx.tolist() == [[2, 3], [1, 2]]


def test_whole_positions_become_real_without_losing_a_fraction():
    scheme = Scheme()
    cache = Cache([scheme])
    cache.positions(scheme, torch.tensor([[0, 1]]))
    assert cache.positions(scheme, torch.tensor([[1.5]])).tolist() == [[0.0, 1.0, 1.5]]
    assert cache.positions(scheme, torch.tensor([[2]])).tolist() == [[0.0, 1.0, 1.5, 2.0]]


def test_positions_widen_when_rows_begin_to_differ():
    scheme = Scheme()
    cache = Cache([scheme])
    cache.positions(scheme, torch.tensor([[0, 1]]))
    held = cache.positions(scheme, torch.tensor([[2], [7]]))
    assert held.tolist() == [[0, 1, 2], [0, 1, 7]]
    assert cache.positions(scheme, torch.tensor([[9]])).tolist() == [[0, 1, 2, 9], [0, 1, 7, 9]]


def test_another_batch_is_refused():
    cache = Cache([Scheme()])
    cache.extend(torch.zeros(2, 3, dtype=torch.long), None, None)
    with pytest.raises(UsageError, match="holds 2 rows, got 3"):
        cache.extend(torch.zeros(3, 1, dtype=torch.long), None, None)


def test_keys_are_cached_turned_only_under_one_static_rotation():
    """xPos turns a key by a factor that moves with the query; an encoding without rotation has nothing to turn."""
    turned = {spec: LayerCache(build(spec)).turned for spec in ("rope", "rope+alibi", "rope+window", "xpos", "alibi", "nope")}
    assert turned == {"rope": True, "rope+alibi": True, "rope+window": True, "xpos": False, "alibi": False, "nope": False}


def test_layers_keep_keys_values_and_streams_apart():
    cache = Cache([build("rope"), build("alibi")])
    k, v = torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4)
    held = cache.layers[0].append(k, v)
    assert torch.equal(held[0], k) and torch.equal(held[1], v)
    assert cache.layers[1].k.length == 0
    layer = cache.layers[1]
    assert layer.carry(0) is None
    layer.append_streams([torch.tensor([[[1.0], [2.0]]])])
    every = layer.append_streams([torch.tensor([[[5.0]]])])
    assert every[0].flatten().tolist() == [1.0, 2.0, 5.0] and layer.carry(0).tolist() == [[[5.0]]]
    assert layer.append_streams([None]) == (None,)
