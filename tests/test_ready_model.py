"""The small model that comes with the repository: small, whole, and without texts of the corpus."""

from pathlib import Path

from mt_cli.runs.run import STATUS, num_parameters, open_run

MODEL = Path(__file__).resolve().parents[1] / "data" / "models" / "multi30k-tiny"
MOST_BYTES, MOST_PARAMETERS = 6_000_000, 3_000_000


def test_the_ready_model_is_small() -> None:
    assert sum(path.stat().st_size for path in MODEL.rglob("*")) < MOST_BYTES
    assert num_parameters(open_run(MODEL).parameter_shapes) < MOST_PARAMETERS


def test_the_ready_model_was_trained_to_its_end() -> None:
    assert open_run(MODEL).read_facts(STATUS)["state"] == "finished"
    assert any(record["kind"] == "validation" for record in open_run(MODEL).metrics())


def test_the_ready_model_holds_no_text_of_the_corpus() -> None:
    assert {path.name for path in MODEL.rglob("*") if path.is_file()} == {
        "README.md", "best.txt", "config.toml", "env.json", "joint.model", "last.txt", "manifest.json",
        "metrics.jsonl", "model.safetensors", "scores.json", "state.json", "status.json", "tokenizer.json",
    }  # fmt: skip
