import json
import resource

import pytest
import torch
from safetensors.torch import load_file

import lengthen
from lengthen.core import LengthenError, UsageError
from lengthen.models import Decoder, make_decoder, preset
from lengthen.models.store import atomic_folder, load_decoder, save_decoder, settle

IDS = torch.arange(18).view(2, 9) * 7 % 50


def decoder(seed: int = 0, specs=("rope:base=500", "alibi"), **changes) -> Decoder:
    model = make_decoder(preset("tiny", vocab=50, width=16, heads=2, layers=3, **changes), list(specs), 12, seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)), alpha=0.1)
    return model.eval()


def save(folder, model: Decoder, specs=("rope:base=500", "alibi"), seed: int = 0) -> None:
    save_decoder(folder, model, list(specs), 12, seed)


@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"groups": 1, "qk_norm": True}])
def test_a_decoder_comes_back_bit_by_bit(tmp_path, changes):
    model = decoder(**changes)
    save(tmp_path / "m", model)
    found = load_decoder(tmp_path / "m")
    assert found.config == model.config and not found.training
    assert torch.equal(found(IDS), model(IDS))
    assert found.blocks[0].attention.scheme is found.blocks[2].attention.scheme
    assert (found.head.weight is found.embed.weight) is model.config.tied


def test_shared_weights_are_written_once(tmp_path):
    model = decoder()
    save(tmp_path / "m", model)
    stored = load_file(tmp_path / "m" / "model.safetensors")
    assert sum(t.numel() for t in stored.values()) == sum(p.numel() for p in model.parameters())
    assert "head.weight" not in stored


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types_are_kept(tmp_path, dtype):
    model = decoder().to(dtype)
    save(tmp_path / "m", model)
    found = load_decoder(tmp_path / "m")
    assert {p.dtype for p in found.parameters()} == {dtype}
    assert torch.equal(found(IDS), model(IDS))


def test_the_description_can_be_read_by_people(tmp_path):
    save(tmp_path / "m", decoder(), seed=5)
    about = json.loads((tmp_path / "m" / "config.json").read_text())
    assert about["lengthen"] == lengthen.__version__
    assert (about["specs"], about["train_length"], about["seed"]) == (["rope:base=500", "alibi"], 12, 5)
    assert (about["sizes"]["width"], about["sizes"]["vocab"]) == (16, 50)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"no config.json in .*the folder does not exist"):
        load_decoder(tmp_path / "m")
    save(tmp_path / "m", decoder())
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no model.safetensors in .*the folder holds config.json"):
        load_decoder(tmp_path / "m")


@pytest.mark.parametrize("name, rest", [("model.safetensors", 0), ("model.safetensors", 200), ("config.json", 30)])
def test_a_damaged_file_is_named(tmp_path, name, rest):
    save(tmp_path / "m", decoder())
    path = tmp_path / "m" / name
    path.write_bytes(path.read_bytes()[:rest])
    with pytest.raises(UsageError, match=f"{name}.* damaged"):
        load_decoder(tmp_path / "m")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"sizes": {"layers": 2}}, r"it has, unasked, blocks\.2\..*, \.\.\.\.$"),
        ({"sizes": {"layers": 4}}, r"it lacks blocks\.3\."),
        ({"sizes": {"hidden": 24}}, r"gate_up.weight is \(96, 16\) there and \(48, 16\) here"),
        ({"sizes": {"depth": 2}}, "does not describe a decoder.*depth"),
        ({"specs": ["ropes"]}, "no method named 'ropes'. Did you mean"),
        ({"seed": None}, "does not describe a decoder.*'seed'"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change, message):
    save(tmp_path / "m", decoder())
    path = tmp_path / "m" / "config.json"
    about = json.loads(path.read_text())
    about["sizes"].update(change.pop("sizes", {}))
    about = {k: v for k, v in {**about, **change}.items() if v is not None}
    path.write_text(json.dumps(about))
    with pytest.raises(UsageError, match=message):
        load_decoder(tmp_path / "m")


def test_saving_again_replaces(tmp_path):
    save(tmp_path / "m", decoder(0))
    save(tmp_path / "m", other := decoder(1), seed=1)
    assert torch.equal(load_decoder(tmp_path / "m")(IDS), other(IDS))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_leaves_the_old_decoder_whole(tmp_path):
    save(tmp_path / "m", old := decoder(0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(LengthenError, match=r"Could not write the model to .*before is whole"):
            save(tmp_path / "m", decoder(1), seed=1)
        with pytest.raises(LengthenError, match="Nothing was written"):
            save(tmp_path / "n", decoder(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert torch.equal(load_decoder(tmp_path / "m")(IDS), old(IDS))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LengthenError, match="Could not write the model"):
        save(tmp_path / "file" / "m", decoder())


def test_killed_while_writing_the_old_folder_stays(tmp_path):
    """A KeyboardInterrupt runs none of the clean-up for disks that refuse, like a kill."""
    save(tmp_path / "m", old := decoder(0))
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "m", "x") as partial:
        (partial / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt
    assert torch.equal(load_decoder(tmp_path / "m")(IDS), old(IDS))
    save(tmp_path / "m", new := decoder(1), seed=1)
    assert torch.equal(load_decoder(tmp_path / "m")(IDS), new(IDS))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("arrived", [False, True])
def test_killed_between_or_after_the_two_renames_one_folder_is_whole(tmp_path, arrived):
    save(tmp_path / "m", old := decoder(0))
    (tmp_path / "m").rename(tmp_path / ".m.previous")
    if arrived:
        save(tmp_path / "n", new := decoder(1), seed=1)
        (tmp_path / "n").rename(tmp_path / "m")
    expected = new if arrived else old
    assert torch.equal(load_decoder(tmp_path / "m")(IDS), expected(IDS))
    settle(tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
