"""What `inspect` says is in a run: counted, hashed and read by other means than its own."""

import hashlib
import json
import shutil
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from damage import rehash
from PIL import Image
from tiny import tiny_model
from workspace import Outcome, Workspace

from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.artefacts.run import open_run
from mt_cli.errors import DataError, UsageError
from mt_cli.model.shape_trace import LEVELS
from mt_cli.model.shapes import num_parameters
from mt_cli.model.translation_model import TranslationModel
from mt_cli.stages.inspect.inspect import describe_run, parameters_by_part
from mt_cli.stages.inspect.run_as_text import facts_that_fit
from mt_cli.stages.inspect.sentence_shapes import mask_panels
from mt_cli.translation.teacher_forcing import TeacherForced

RUN = "runs/tiny"
SECTIONS = ["run", "parameters", "vocabulary", "scores", "data", "sha256", "environment", "config"]
SENTENCE = "Ein Hund schläft."

Document = dict[str, dict[str, object]]


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, to change at will."""
    return workspace.copy_run(tmp_path / "run")


def inspect(workspace: Workspace, run: object = RUN, *args: object, cwd: Path | None = None) -> Outcome:
    return workspace.call("inspect", run, *args, cwd=cwd)


def document(outcome: Outcome) -> Document:
    """The one JSON document on stdout."""
    assert outcome.code == 0, outcome.err
    found: Document = json.loads(outcome.out)
    return found


def sections_of(text: str) -> dict[str, list[str]]:
    """Lines of each section of the text, by its heading; the config, which has headings of its own, apart."""
    described, _, config = text.partition("\n\nconfig\n")
    parts = [part.split("\n") for part in described.split("\n\n")]
    return {**{head: lines for head, *lines in parts}, "config": config.split("\n")}


# Parameters

OPTIONS = [
    pytest.param(
        {"tie": tie, "positions": positions, "final_norm": final_norm, "output_bias": output_bias},
        id=f"{tie}-{positions}-{'norm' if final_norm else 'no norm'}-{'bias' if output_bias else 'no bias'}",
    )
    for tie, positions, final_norm, output_bias in product(
        ("none", "decoder", "all"), ("sinusoidal", "learned"), (True, False), (True, False)
    )
]


def sizes_of(model: TranslationModel) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("backend", ["torch", "scratch"])
@pytest.mark.parametrize("options", OPTIONS)
def test_parts_add_up_to_all_parameters(backend: str, options: Mapping[str, object]) -> None:
    model = tiny_model(backend, options=options)
    counts = parameters_by_part(sizes_of(model))
    total = counts.pop("total")
    assert total == sum(parameter.numel() for parameter in model.parameters())
    assert total == sum(np.array(list(counts.values()), dtype=int))


ATTENTION = 3 * 8 * 8 + 3 * 8 + 8 * 8 + 8  # packed projections of queries, keys and values; output projection
FEED_FORWARD = 8 * 16 + 16 + 16 * 8 + 8
NORM = 8 + 8
BY_HAND = {
    "source_embedding": 11 * 8,
    "target_embedding": 11 * 8,
    "source_positions": 16 * 8,
    "target_positions": 16 * 8,
    "encoder_self_attention": 2 * ATTENTION,
    "encoder_feed_forward": 2 * FEED_FORWARD,
    "encoder_norms": 2 * 2 * NORM + NORM,
    "decoder_self_attention": ATTENTION,
    "decoder_cross_attention": ATTENTION,
    "decoder_feed_forward": FEED_FORWARD,
    "decoder_norms": 3 * NORM + NORM,
    "output_layer": 8 * 11 + 11,
    "total": 2667,
}
"""d_model 8, d_ff 16, two encoder layers, one decoder layer, 11 entries a side, 16 places; untied."""


@pytest.mark.parametrize("backend", ["torch", "scratch"])
def test_parameters_are_those_counted_by_hand(backend: str) -> None:
    model = tiny_model(backend, positions="learned", output_bias=True)
    assert parameters_by_part(sizes_of(model)) == BY_HAND


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"tie": "decoder"}, {"output_layer": 11, "total": 2667 - 88}),
        ({"tie": "all"}, {"target_embedding": 0, "output_layer": 11, "total": 2667 - 2 * 88}),
        ({"output_bias": False}, {"output_layer": 88, "total": 2667 - 11}),
        (
            {"positions": "sinusoidal"},
            {"source_positions": 0, "target_positions": 0, "total": 2667 - 2 * 128},
        ),
        ({"final_norm": False}, {"encoder_norms": 64, "decoder_norms": 48, "total": 2667 - 2 * 16}),
    ],
    ids=["tied output", "tied everything", "no bias", "fixed positions", "no final norm"],
)
def test_shared_and_absent_parameters_are_not_counted(
    options: Mapping[str, object], changed: Mapping[str, int]
) -> None:
    model = tiny_model(options={"positions": "learned", "output_bias": True, **options})
    assert parameters_by_part(sizes_of(model)) == {**BY_HAND, **changed}


def test_total_is_that_of_the_weights_on_disk(workspace: Workspace) -> None:
    report = describe_run(workspace.run)
    weights = workspace.run / "checkpoints" / str(report["run"]["checkpoint"]) / "model.safetensors"
    header_size = int.from_bytes(weights.read_bytes()[:8], "little")
    header = json.loads(weights.read_bytes()[8 : 8 + header_size])
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    assert report["parameters"]["total"] == sum(np.prod(shape, dtype=int) for shape in shapes)


# The report


def test_text_has_every_section_in_order(workspace: Workspace) -> None:
    outcome = inspect(workspace)
    assert (outcome.code, outcome.err) == (0, "")
    assert list(sections_of(outcome.text)) == SECTIONS


def test_json_has_the_same_sections(workspace: Workspace) -> None:
    assert list(document(inspect(workspace, RUN, "--json"))) == SECTIONS


def test_run_section_is_what_status_says(workspace: Workspace) -> None:
    status = json.loads(workspace.run.joinpath("status.json").read_bytes())
    del status["seal"], status["best_score"]  # the latter stands among the scores, with its signature
    checkpoint = workspace.run.joinpath("best.txt").read_text().strip()
    assert document(inspect(workspace, RUN, "--json"))["run"] == {
        "folder": RUN,
        "checkpoint": checkpoint,
        **status,
    }


def test_hashes_are_those_of_the_files(workspace: Workspace) -> None:
    hashes = document(inspect(workspace, RUN, "--json"))["sha256"]
    folders = {True: workspace.run / "checkpoints", False: workspace.run}
    found = {
        name: hashlib.sha256((folders[name.startswith("step-")] / name).read_bytes()).hexdigest()
        for name in hashes
    }
    assert hashes == found
    checkpoint = workspace.run.joinpath("best.txt").read_text().strip()
    assert {"config.toml", "tokenizer/joint.model", f"{checkpoint}/model.safetensors"} <= set(hashes)


def test_data_section_has_the_hashes_of_the_corpus(workspace: Workspace) -> None:
    data = document(inspect(workspace, RUN, "--json"))["data"]
    found = {
        f"{split}.{side}": hashlib.sha256(workspace.corpus(f"{split}.{lang}").read_bytes()).hexdigest()
        for split, (side, lang) in product(("train", "val", "test"), (("src", "de"), ("tgt", "en")))
    }
    manifest = json.loads(workspace.run.joinpath("manifest.json").read_bytes())
    reference = {"prepared_folder": "data/prepared/tiny", "prepared_sha256": manifest["prepared"]["sha256"]}
    assert data == {**reference, **found}


def test_environment_is_that_that_training_wrote_down(workspace: Workspace) -> None:
    environment = document(inspect(workspace, RUN, "--json"))["environment"]
    assert sealed(environment) == json.loads(workspace.run.joinpath("env.json").read_bytes())


def test_config_section_is_the_runs_config_as_toml(workspace: Workspace) -> None:
    config = tomllib.loads("\n".join(sections_of(inspect(workspace).text)["config"]))
    assert config == tomllib.loads(workspace.run.joinpath("config.toml").read_text())


def test_json_config_holds_the_same_values(workspace: Workspace) -> None:
    config = tomllib.loads(workspace.run.joinpath("config.toml").read_text())
    shown = document(inspect(workspace, RUN, "--json"))["config"]
    assert {name: shown[name] for name in ("model", "decoding", "runtime")} == {
        name: config[name] for name in ("model", "decoding", "runtime")
    }


def test_vocabulary_has_its_sizes_and_first_entries(workspace: Workspace) -> None:
    vocabulary = document(inspect(workspace, RUN, "--json"))["vocabulary"]
    first = vocabulary.pop("src_first")
    assert vocabulary == {"kind": "bpe", "joint": True, "src_entries": 420, "tgt_entries": 420}
    assert isinstance(first, list)
    assert len(first) == 10
    assert [entry for entry in first if entry.startswith("<")] == []


def test_numbers_stand_right_with_thousands_marked(workspace: Workspace) -> None:
    lines = sections_of(inspect(workspace).text)["parameters"]
    assert lines[0] == "  source_embedding          26,880"  # 420 entries, d_model 64
    assert {len(line) for line in lines} == {len(lines[0])}


def test_validation_of_the_checkpoint_is_shown_with_its_signature(workspace: Workspace) -> None:
    step = int(workspace.run.joinpath("best.txt").read_text().strip().removeprefix("step-"))
    records = [json.loads(line) for line in workspace.run.joinpath("metrics.jsonl").read_text().splitlines()]
    (record,) = [r for r in records if r["kind"] == "validation" and r["step"] == step]
    (line,) = sections_of(inspect(workspace).text)["scores"]
    assert line == (
        f"  val, step {step}  BLEU {record['bleu']:.2f}  {record['bleu_signature']}  nll {record['nll']:.4f}"
    )


def test_scores_of_evaluate_are_shown_with_their_signature(workspace: Workspace, run: Path) -> None:
    evaluated = workspace.call("evaluate", run, "--data", workspace.prepared, "--json", "--quiet")
    scores = document(evaluated)["splits"]["test"]
    assert isinstance(scores, dict)
    bleu = scores["bleu"]
    checkpoint = run.joinpath("best.txt").read_text().strip()
    lines = sections_of(inspect(workspace, run).text)["scores"]
    assert [line for line in lines if line.startswith("  test-greedy")] == [
        f"  test-greedy    BLEU {bleu['score']:.2f}  {bleu['signature']}  {checkpoint}"
    ]
    stored = document(inspect(workspace, run, "--json"))["scores"]
    assert isinstance(stored["test-greedy"], dict)
    assert stored["test-greedy"].items() >= {**scores, "checkpoint": checkpoint}.items()


@pytest.mark.parametrize("pointer", ["best", "last"])
def test_checkpoint_is_the_one_asked_for(workspace: Workspace, pointer: str) -> None:
    name = workspace.run.joinpath(f"{pointer}.txt").read_text().strip()
    by_pointer = document(inspect(workspace, RUN, "--json", "--checkpoint", pointer))
    assert by_pointer == document(inspect(workspace, RUN, "--json", "--checkpoint", name))
    assert by_pointer["run"]["checkpoint"] == name
    assert f"{name}/model.safetensors" in by_pointer["sha256"]
    assert list(by_pointer["scores"]) == [f"val, step {int(name.removeprefix('step-'))}"]


def test_best_and_last_differ_here(workspace: Workspace) -> None:
    best, last = (workspace.run.joinpath(f"{name}.txt").read_text() for name in ("best", "last"))
    assert best != last


def test_moved_run_whose_data_are_gone_is_described(workspace: Workspace, run: Path) -> None:
    outcome = inspect(workspace, run.name, "--json", cwd=run.parent)
    assert document(outcome)["data"]["prepared_folder"] == "data/prepared/tiny"
    assert list(document(outcome)["data"]) == ["prepared_folder", "prepared_sha256"]
    assert outcome.err == ""


def test_data_prepared_anew_are_not_taken_for_the_runs(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    prepared = tmp_path / "data" / "prepared" / "tiny"
    shutil.copytree(workspace.prepared, prepared)
    manifest = json.loads(prepared.joinpath("manifest.json").read_bytes())
    manifest["outputs"]["train.src.npy"] = "0" * 64
    write_json(prepared / "manifest.json", sealed(manifest))
    outcome = inspect(workspace, run, "--json", cwd=tmp_path)
    assert list(document(outcome)["data"]) == ["prepared_folder", "prepared_sha256"]


def test_looking_changes_nothing_in_the_run(workspace: Workspace, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    inspect(workspace, run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


# Runs that are not as they should be


@pytest.mark.parametrize("name", ["status.json", "env.json"])
def test_file_that_says_more_may_be_missing(workspace: Workspace, run: Path, name: str) -> None:
    run.joinpath(name).unlink()
    assert inspect(workspace, run).code == 0


def test_run_without_metrics_is_described_without_validations(workspace: Workspace, run: Path) -> None:
    run.joinpath("metrics.jsonl").unlink()
    assert document(inspect(workspace, run, "--json"))["scores"] == {}


def test_half_a_line_that_a_kill_left_is_passed_over(workspace: Workspace, run: Path) -> None:
    whole = document(inspect(workspace, run, "--json"))
    with run.joinpath("metrics.jsonl").open("a") as file:
        file.write('{"kind": "st')
    outcome = inspect(workspace, run, "--json")
    assert "Traceback" not in outcome.err
    assert document(outcome) == whole


@pytest.mark.parametrize("line", ["", "3", "{}", "[]"], ids=["empty", "a number", "no keys", "a list"])
def test_damaged_line_of_metrics_is_named(workspace: Workspace, run: Path, line: str) -> None:
    number = len(run.joinpath("metrics.jsonl").read_text().splitlines()) + 1
    with run.joinpath("metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")
    outcome = inspect(workspace, run)
    assert outcome.code == 3
    assert f"metrics.jsonl: line {number}: " in outcome.err


def write_half(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"half": ')


@pytest.mark.parametrize("name", ["status.json", "env.json", "eval/test-greedy/scores.json"])
def test_damaged_file_exits_3_and_is_named(workspace: Workspace, run: Path, name: str) -> None:
    write_half(run / name)
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {run / name}: not valid JSON")


@pytest.mark.parametrize("content", ["{}", '{"bleu": 3}', '{"bleu": null}'])
def test_scores_of_another_form_are_shown_as_they_are(workspace: Workspace, run: Path, content: str) -> None:
    write_half(run / "eval" / "test-greedy" / "scores.json")
    run.joinpath("eval", "test-greedy", "scores.json").write_text(content)
    assert document(inspect(workspace, run, "--json"))["scores"]["test-greedy"] == json.loads(content)
    assert inspect(workspace, run).code == 0


def best_of(run: Path) -> Path:
    return run / "checkpoints" / run.joinpath("best.txt").read_text().strip()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda best: best.joinpath("manifest.json").unlink(),
            "no complete checkpoint (manifest.json is missing)",
        ),
        (lambda best: best.joinpath("manifest.json").write_text("{}"), "manifest.json: lists no"),
        (lambda best: write_half(best / "manifest.json"), "manifest.json: not valid JSON"),
        (lambda best: best.joinpath("model.safetensors").unlink(), "model.safetensors: missing"),
        (lambda best: best.joinpath("model.safetensors").write_bytes(b"x"), "model.safetensors: altered or"),
    ],
    ids=["no manifest", "no hashes", "half a manifest", "weights gone", "weights altered"],
)
def test_damaged_checkpoint_exits_3_and_is_named(
    workspace: Workspace, run: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(best_of(run))
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.splitlines()[-1].startswith(f"error: {best_of(run)}")
    assert message in outcome.err


def test_altered_config_exits_3_and_is_named(workspace: Workspace, run: Path) -> None:
    with run.joinpath("config.toml").open("a") as file:
        file.write("\n")
    with pytest.raises(DataError, match=r"config\.toml: altered or damaged: sha256 "):
        describe_run(run)


def test_run_without_checkpoints_is_described_without(workspace: Workspace, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    run.joinpath("best.txt").unlink()
    run.joinpath("last.txt").unlink()
    report = document(inspect(workspace, run, "--json"))
    assert report["run"]["checkpoint"] is None
    assert not [name for name in report["sha256"] if name.startswith("step-")]


def test_checkpoint_that_is_gone_is_not_offered_again(workspace: Workspace, run: Path) -> None:
    best = best_of(run)
    shutil.rmtree(best)
    outcome = inspect(workspace, run)
    last = run.joinpath("last.txt").read_text().strip()
    assert (outcome.code, outcome.err) == (
        3,
        f"error: {run}/best.txt: names {best.name}, which is not in checkpoints; there: {last}; "
        "write the name of one into it\n",
    )


def test_run_between_its_first_checkpoint_and_its_first_best_is_described(
    workspace: Workspace, run: Path
) -> None:
    run.joinpath("best.txt").unlink()
    assert describe_run(run)["run"]["checkpoint"] is None
    assert inspect(workspace, run).code == 0


@pytest.mark.parametrize("content", [b"", b"best\n", b"step-1", b"\xff" * 9, b"x" * 10**6], ids=len)
def test_damaged_pointer_exits_3_and_is_not_quoted_at_any_length(
    workspace: Workspace, run: Path, content: bytes
) -> None:
    run.joinpath("best.txt").write_bytes(content)
    outcome = inspect(workspace, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {run}/best.txt: ")
    assert len(outcome.err) < 500


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_names_leave_room_for_their_values_on_a_terminal(workspace: Workspace, width: int) -> None:
    facts = describe_run(workspace.run)
    name = f"test-beam20-alpha1.4-with-{'x' * 40}-reranked-{'y' * 40}"
    facts["scores"] = {**facts["scores"], name: {"bleu": {"score": 44.0, "signature": "nrefs:1|case:mixed"}}}
    lines = facts_that_fit(facts, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "    BLEU 44.00  nrefs:1|case:mixed" in "\n".join(lines)
    assert len(lines) < 150


def test_run_with_a_config_of_other_tools_stays_a_run(workspace: Workspace, run: Path) -> None:
    run.joinpath("config.json").write_text('{"model_type": "marian"}')
    assert inspect(workspace, run).code == 0
    assert open_run(run).folder == run


def test_run_whose_model_does_not_fit_is_described_all_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.model.shapes.usable_memory", lambda: 1 << 10)
    assert describe_run(run)["parameters"]["total"] == num_parameters(open_run(run).parameter_shapes)


@pytest.mark.parametrize("name", ["none", "", "../x", "step-1", "step-00000080/", "BEST"])
def test_unknown_checkpoint_exits_2_and_lists_those_there(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint '.*'; it has best, last, step-"):
        describe_run(workspace.run, checkpoint=name)


def test_folder_among_the_checkpoints_that_is_none_is_refused(workspace: Workspace, run: Path) -> None:
    shutil.copytree(best_of(run), run / "checkpoints" / "step-x")
    outcome = inspect(workspace, run, "--checkpoint", "step-x")
    assert "Traceback" not in outcome.err
    assert (outcome.code, outcome.out) == (2, b"")


@pytest.mark.parametrize(
    ("run", "code", "message"),
    [
        ("runs/tinny", 2, "error: runs/tinny: no such run folder; found: runs/tiny\n"),
        (
            "corpus",
            2,
            "error: corpus: no run folder (it has no manifest.json); mt-cli train CONFIG makes one\n",
        ),
        ("tiny.toml", 2, "error: tiny.toml: no such run folder"),
        ("data/prepared/tiny", 3, "error: data/prepared/tiny/manifest.json: not a run manifest"),
    ],
    ids=["missing", "another folder", "a file", "prepared data"],
)
@pytest.mark.parametrize("look", [[], ["--shapes"], ["--masks", "masks.png"]], ids=["", "shapes", "masks"])
def test_run_that_is_none_is_refused(
    workspace: Workspace, run: str, code: int, message: str, look: list[str]
) -> None:
    outcome = inspect(workspace, run, *look)
    assert (outcome.code, outcome.out) == (code, b"")
    assert outcome.err.startswith(message)


# Shapes


def shapes_of(workspace: Workspace, *args: object) -> dict[str, object]:
    outcome = inspect(workspace, RUN, "--shapes", "--json", "--text", SENTENCE, *args)
    assert (outcome.code, outcome.err) == (0, "")
    found: dict[str, object] = json.loads(outcome.out)
    return found


def tensors_of(workspace: Workspace, *args: object) -> list[dict[str, object]]:
    tensors = shapes_of(workspace, *args)["tensors"]
    assert isinstance(tensors, list)
    return tensors


def test_shapes_as_json_say_of_what(workspace: Workspace) -> None:
    found = shapes_of(workspace)
    translated = workspace.call("translate", RUN, "--text", SENTENCE)
    assert list(found) == ["source", "translation", "legend", "depths", "tensors"]
    assert [found["source"], found["translation"]] == [SENTENCE, *translated.lines]
    assert found["depths"] == {"encoder": 1, "decoder": 1}


def test_legend_has_the_configs_sizes(workspace: Workspace) -> None:
    legend = shapes_of(workspace)["legend"]
    assert isinstance(legend, dict)
    assert {letter: legend[letter] for letter in "BDHKFV"} == {
        "B": 1,
        "D": 64,
        "H": 2,
        "K": 32,
        "F": 128,
        "V": 420,
    }


def test_letters_and_sizes_of_each_tensor_agree(workspace: Workspace) -> None:
    legend = shapes_of(workspace)["legend"]
    assert isinstance(legend, dict)
    sizes = {**legend, "1": 1}
    tensors = tensors_of(workspace)
    assert [tensor["shape"] for tensor in tensors] == [
        [sizes[letter] for letter in str(tensor["letters"]).split()] for tensor in tensors
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_level_shows_itself_and_those_before_it(workspace: Workspace, level: str) -> None:
    order = ["model", "layer", "block", "head", "attention"]
    shown = tensors_of(workspace, "--level", level)
    assert {tensor["level"] for tensor in shown} == set(order[: order.index(level) + 1])
    assert shown == [
        tensor for tensor in tensors_of(workspace) if tensor["level"] in order[: order.index(level) + 1]
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_text_has_a_line_for_each_tensor(workspace: Workspace, level: str) -> None:
    outcome = inspect(workspace, RUN, "--shapes", "--text", SENTENCE, "--level", level)
    rows = [line.split() for line in outcome.lines if line.startswith("  ")]
    assert [" ".join(row) for row in rows] == [
        f"{tensor['name']} ({', '.join(str(tensor['letters']).split())}) "
        + " × ".join(map(str, tensor["shape"] if isinstance(tensor["shape"], list) else []))
        for tensor in tensors_of(workspace, "--level", level)
    ]


def test_text_names_tokens_letters_and_places(workspace: Workspace) -> None:
    lines = inspect(workspace, RUN, "--shapes", "--text", SENTENCE).lines
    assert lines[0].startswith("source  ▁Ein ▁")
    assert lines[0].endswith(" . </s>")
    assert lines[1].startswith("target  <s> ")
    assert "D = 64     d_model" in lines
    assert "N = 1      encoder layers, all alike" in lines
    assert {"model", "encoder layer 1, self-attention", "decoder layer 1, cross-attention"} <= set(lines)


def test_shapes_have_a_sentence_of_their_own(workspace: Workspace) -> None:
    usual = "Ein Mann schläft auf einer Bank."
    without = inspect(workspace, RUN, "--shapes")
    assert without == inspect(workspace, RUN, "--shapes", "--text", usual)
    assert without != inspect(workspace, RUN, "--shapes", "--text", SENTENCE)


@pytest.mark.parametrize("look", [["--shapes"], ["--masks", "masks.svg"]], ids=["shapes", "masks"])
@pytest.mark.parametrize("text", ["", " ", "\u200b"], ids=ascii)
def test_empty_text_is_refused(workspace: Workspace, run: Path, look: list[str], text: str) -> None:
    outcome = inspect(workspace, run, *look, "--text", text, cwd=run)
    message = "error: the text is empty: there is nothing to look at; give a sentence\n"
    assert outcome == Outcome(2, b"", message)
    assert not run.joinpath("masks.svg").exists()


def test_unknown_level_is_named_with_those_there_are(workspace: Workspace) -> None:
    outcome = inspect(workspace, RUN, "--shapes", "--level", "tensor")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "'tensor' is not one of 'model', 'layer', 'block', 'head', 'attention'" in outcome.err


def test_a_run_trained_on_the_torch_backend_is_traced_too(workspace: Workspace, run: Path) -> None:
    config = run.joinpath("config.toml").read_bytes()
    rehash(run, "config.toml", config.replace(b'backend = "scratch"', b'backend = "torch"'))
    ours, theirs = (inspect(workspace, folder, "--shapes") for folder in (RUN, run))
    assert (theirs, theirs.code) == (ours, 0)
    assert describe_run(run)["parameters"] == describe_run(workspace.run)["parameters"]


# Masks

PAIR = TeacherForced(
    source="Ein Hund",
    translation="A",
    src_ids=torch.tensor([[4, 5, 3]]),
    tgt_in=torch.tensor([[2, 8]]),
    src_tokens=("Ein", "Hund", "</s>"),
    tgt_tokens=("<s>", "A"),
    predicted_tokens=("A", "</s>"),
)
PADDED = ("Ein", "Hund", "</s>", "<pad>", "<pad>", "<pad>")


def test_nobody_attends_to_padding_and_no_target_to_a_later_one() -> None:
    encoder, decoder, cross = mask_panels(PAIR)
    assert encoder.values.tolist() == [[1, 1, 1, 0, 0, 0]] * 6
    assert decoder.values.tolist() == [[1, 0], [1, 1]]
    assert cross.values.tolist() == [[1, 1, 1, 0, 0, 0]] * 2


def test_masks_are_labelled_with_tokens() -> None:
    panels = mask_panels(PAIR)
    assert [panel.title for panel in panels] == [
        "encoder self-attention",
        "decoder self-attention",
        "cross-attention",
    ]
    assert [(panel.rows, panel.columns) for panel in panels] == [
        (PADDED, PADDED),
        (("<s>", "A"), ("<s>", "A")),
        (("<s>", "A"), PADDED),
    ]


def test_masks_are_drawn_as_svg(workspace: Workspace, tmp_path: Path) -> None:
    outcome = inspect(workspace, RUN, "--masks", tmp_path / "masks.svg", "--text", ".")
    texts = [element.text for element in ET.parse(tmp_path / "masks.svg").iter() if element.text]
    assert outcome == Outcome(0, b"", "")
    assert texts.count("<pad>") == 3 * 3
    assert {"masks: rows may attend to the dark columns", "cross-attention", "<s>", "</s>"} <= set(texts)


def test_shapes_and_masks_may_be_asked_for_together(workspace: Workspace, tmp_path: Path) -> None:
    look = ("--shapes", "--text", ".")
    outcome = inspect(workspace, RUN, *look, "--masks", tmp_path / "masks.png")
    assert outcome == inspect(workspace, RUN, *look)
    with Image.open(tmp_path / "masks.png") as image:
        image.load()
        assert min(image.size) > 100


@pytest.mark.parametrize("name", ["masks.json", "masks.pdf", "masks", "-", ".png"])
def test_masks_of_another_ending_are_refused_before_the_run_is_read(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    outcome = inspect(workspace, "no/such/run", "--masks", name, cwd=tmp_path)
    message = f"error: {name}: the file's ending says how to draw; use .png, .svg\n"
    assert outcome == Outcome(2, b"", message)
    assert list(tmp_path.iterdir()) == []
