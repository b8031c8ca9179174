"""A run that goes on is the run that was interrupted; one that is not the same is refused, or accepted by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from outlive.run.claim import claim
from outlive.run.errors import InputError
from outlive.run.metrics import read
from tests.engines.resuming import Verb
from tests.engines.test_loop import tiny_folder


@pytest.fixture
def verb(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Verb(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows)


@pytest.fixture
def done(verb: Verb) -> Verb:
    """A run of 8 steps with checkpoints at 3, 6 and 8."""
    verb.train()
    return verb


@pytest.mark.parametrize("which", ["3", "6", "latest", "best", "auto"])
def test_each_place_gives_the_same_curve(done: Verb, which: str) -> None:
    expected = done.curve()
    state = load_file(next((done.folder.checkpoint(8) / "state").glob("*.safetensors")))
    for path in [done.folder.checkpoint(8), *([done.folder.checkpoint(6)] if which == "best" else [])]:
        path.rename(done.root / path.name)  # as if the run had been interrupted before
    done.train(resume=which)
    assert done.curve() == expected
    again = load_file(next((done.folder.checkpoint(8) / "state").glob("*.safetensors")))
    assert state.keys() == again.keys()
    assert all(torch.equal(state[name], again[name]) for name in state)
    attempts = {record.step: record.attempt for record in read(done.folder.metrics).records if record.kind == "train"}
    start = 6 if which in ("6", "latest", "auto") else 3
    assert attempts == {step: 1 if step <= start else 2 for step in range(1, 9)}


def test_nothing_is_lost_where_a_run_goes_back(done: Verb) -> None:
    """Later checkpoints and records are set aside, not overwritten."""
    done.train(resume="3")
    aside = done.folder.root / "superseded" / "before-attempt-2"
    assert sorted(path.name for path in aside.iterdir()) == ["step-00000006", "step-00000008"]
    moved = [json.loads(line) for line in (done.folder.root / "superseded.jsonl").read_text().splitlines()]
    assert [line["step"] for line in moved if line["kind"] == "train"] == [4, 5, 6, 7, 8]


def test_checkpoints_that_are_gone_are_missed(verb: Verb) -> None:
    """A disk that is not mounted must not cost the training: the run begins anew only when told to."""
    verb.train()
    expected = verb.curve()
    for step in (3, 6, 8):
        verb.folder.checkpoint(step).rename(verb.root / str(step))
    for which in ("latest", "auto", "best"):
        with pytest.raises(InputError, match=r"3 checkpoints were saved, the last after step 8"):
            verb.train(resume=which)
    verb.train(resume="0")
    assert verb.curve() == expected


def test_auto_starts_a_run_that_is_not_there(verb: Verb) -> None:
    assert verb.train(resume="auto").steps == 8
    with pytest.raises(InputError, match="no such run"):
        verb.train("name=other", resume="latest")


def test_a_complete_run_is_left_as_it_is(done: Verb) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.folder.root.rglob("*") if path.name != ".claim"}
    result = done.train(resume="latest")
    assert (result.status, result.steps) == ("done", 8)
    assert "this run is complete" in done.said
    changed = {path for path in before if path.is_file() and path.stat().st_mtime_ns != before[path]}
    assert not changed


@pytest.mark.parametrize("damage", ["manifest", "short", "flipped"])
def test_a_damaged_checkpoint_is_never_gone_on_from(done: Verb, damage: str) -> None:
    expected = done.curve()
    folder = done.folder.checkpoint(8)
    weights = next((folder / "state").glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    if damage == "manifest":
        (folder / "manifest.json").unlink()
    elif damage == "short":
        weights.write_bytes(data[:-5])
    else:
        data[-5] ^= 1
        weights.write_bytes(data)
    with pytest.raises(InputError, match=r"no whole checkpoint of step 8|hash"):
        done.train(resume="8")
    done.train(resume="latest")
    assert "left out" in done.said
    assert "step-00000006" in done.said
    assert done.curve() == expected
    assert (done.folder.root / "superseded" / "before-attempt-2" / "step-00000008").is_dir()


@pytest.mark.parametrize(
    ("change", "key", "can"),
    [
        ("optimizer.lr=2e-3", "optimizer.lr", True),
        ("stop.steps=12", "stop.steps", True),
        ("data.loss_on=all", "data.loss_on", True),
        ("seed=5", "seed", True),
        ("adapter.rank=4", "adapter", False),
    ],
)
def test_another_run_is_refused_with_the_difference(done: Verb, change: str, key: str, can: bool) -> None:
    before = done.curve()
    with pytest.raises(InputError, match=key) as error:
        done.train(change, resume="6")
    assert (f"--accept {key}" in str(error.value)) == can
    assert done.curve() == before
    assert done.steps() == [3, 6, 8]


def test_other_rows_are_refused_or_accepted_by_name(done: Verb) -> None:
    """Accepted, the pass ends where it stands and the next one is of the new rows: no order is guessed."""
    lines = done.rows.read_text().splitlines()
    done.rows.write_text("\n".join(reversed(lines)) + "\n")
    with pytest.raises(InputError, match=r"data\.train"):
        done.train(resume="6")
    done.train(resume="6", accept=["data.train"])
    assert "the next one begins" in done.said
    last = [record for record in read(done.folder.metrics).records if record.kind == "train"][-2:]
    assert [record.epoch for record in last] == [1, 1]


def test_another_template_is_refused(done: Verb) -> None:
    template = done.model / "chat_template.jinja"
    template.write_text(template.read_text().replace("small assistant", "large assistant"))
    with pytest.raises(InputError, match="chat_template"):
        done.train(resume="6")


def test_another_base_is_refused(verb: Verb) -> None:
    verb.settings["adapter.rank"] = "4"
    verb.train()
    config = json.loads((verb.model / "config.json").read_text())
    (verb.model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    with pytest.raises(InputError, match=r"--accept model"):
        verb.train(resume="6")


def test_more_steps_are_an_explicit_choice(done: Verb) -> None:
    """The schedule is stretched to the new end, or stays where it was with optimizer.schedule_steps."""
    done.train("stop.steps=12", resume="8", accept=["stop"])
    stretched = [record.lr for record in read(done.folder.metrics).records if record.kind == "train"]
    assert len(stretched) == 12
    assert stretched[8] > stretched[7]  # up again, since the end is further away
    done.train("stop.steps=12", "optimizer.schedule_steps=8", resume="8", accept=["optimizer.schedule_steps"])
    kept = [record.lr for record in read(done.folder.metrics).records if record.kind == "train"]
    assert kept[:8] == stretched[:8]
    assert set(kept[8:]) == {0.0}


def test_smaller_passes_may_differ(done: Verb) -> None:
    """What changes no result but for rounding needs no word."""
    expected = done.curve()
    done.train("batch.micro_tokens=288", "checkpoint.keep=9", resume="6")
    assert [loss for *_, loss, _ in done.curve()] == pytest.approx([loss for *_, loss, _ in expected], rel=1e-5)


def test_names_that_accept_nothing_are_refused(done: Verb) -> None:
    with pytest.raises(InputError, match=r"nothing is called optimizer\.lrr; did you mean optimizer\.lr"):
        done.train(resume="6", accept=["optimizer.lrr"])
    with pytest.raises(InputError, match="goes with --resume"):
        done.train(accept=["optimizer.lr"])
    with pytest.raises(InputError, match=r"nothing is called nonsense"):
        done.train("optimizer.lr=2e-3", resume="6", accept=["nonsense", "optimizer"])
    done.train("optimizer.lr=2e-3", resume="6", accept=["learning_rate"])  # as other tools call it
    with pytest.raises(InputError, match="did you mean latest"):
        done.train(resume="lates")


def test_a_run_in_use_is_refused(done: Verb) -> None:
    with claim(done.folder), pytest.raises(InputError, match="in use"):
        done.train(resume="6")


def test_no_key_has_a_wrappers_prefix_and_nothing_is_a_pickle(verb: Verb) -> None:
    verb.settings["adapter.rank"] = "4"
    verb.train()
    checkpoint = verb.folder.checkpoint(8)
    names = load_file(next((checkpoint / "state").glob("*.safetensors"))).keys()
    assert "model.layers.0.self_attn.q_proj.lora_A.weight" in names
    assert "optimizer.state.model.layers.0.self_attn.q_proj.lora_A.weight.exp_avg" in names
    assert not [name for name in names if "base_model" in name or "default" in name or "module" in name]
    for path in checkpoint.rglob("*"):
        assert not path.is_file() or path.suffix in (".json", ".safetensors", ".jinja"), path
    trainer = json.loads((checkpoint / "state" / "trainer.json").read_text())
    assert trainer["step"] == 8
    assert trainer["optimizer"]["step"] == 8
    assert trainer["random"]["seed"] == 0


def test_torch_reads_the_state_too(done: Verb) -> None:
    """Through torch.distributed.checkpoint, without Outlive."""
    import torch.distributed.checkpoint as dcp

    folder = done.folder.checkpoint(8) / "state"
    expected = load_file(next(folder.glob("*.safetensors")))
    found = {name: torch.empty_like(tensor) for name, tensor in expected.items()}
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
