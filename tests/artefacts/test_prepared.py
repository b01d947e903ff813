"""Prepared data: read as they were written, and refused when they have changed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from damage import IMPOSTORS, accepted_flips, replace_by, without_seal
from workspace import Workspace

from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.artefacts.prepared import (
    Prepared,
    check_prepared_for,
    open_prepared,
    open_prepared_of,
    seal_prepared,
)
from mt_cli.artefacts.run import open_run
from mt_cli.artefacts.run_manifest import PreparedReference
from mt_cli.config import Config, DataConfig, FilesConfig, ModelConfig, TokenizerConfig
from mt_cli.errors import DataError, PreparedDataError
from mt_cli.stages.prepare.prepare import prepare_corpus

LINES = {
    "train.src": "ein Hund\nein Ball\n",
    "train.tgt": "a dog\na ball\n",
    "val.src": "  ein\u00a0Hund  \n\nder\u2028Ball\r\n",
    "val.tgt": "a  dog \nnothing\nthe\x0bball",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpus")
    for name, text in LINES.items():
        (folder / name).write_bytes(text.encode())
    files = {
        name: FilesConfig(src=folder / f"{name}.src", tgt=folder / f"{name}.tgt") for name in ("train", "val")
    }
    config = Config(
        data=DataConfig(corpus="files", splits=("train", "val"), files=files),
        tokenizer=TokenizerConfig(kind="bpe", vocab_size=300),
    )
    prepare_corpus(config, out=folder / "made")
    return open_prepared(folder / "made")


@pytest.fixture
def folder(original: Prepared, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(original.folder, tmp_path / "copy"))


def config_of(prepared: Prepared) -> Config:
    return Config.model_validate({"data": prepared.manifest.data, "tokenizer": prepared.manifest.tokenizer})


def test_lines_are_those_of_the_corpus(original: Prepared) -> None:
    assert original.lines("val", "src") == ["  ein\u00a0Hund  ", "", "der\u2028Ball"]
    assert original.lines("val", "tgt") == ["a  dog ", "nothing", "the\x0bball"]


def test_split_holds_every_line_in_order(original: Prepared) -> None:
    split = original.split("val")
    decoded = original.tokenizers.src.decode([split.src[i].tolist() for i in range(len(split))])
    assert decoded == ["ein Hund", "", "der Ball"]


def test_unknown_split_is_answered_with_the_known_ones(original: Prepared) -> None:
    with pytest.raises(DataError, match=r"no split 'test'; it has train, val"):
        original.split("test")
    with pytest.raises(DataError, match=r"no split 'test'; it has train, val"):
        original.lines("test", "tgt")


def test_identity_does_not_depend_on_the_place(original: Prepared, folder: Path) -> None:
    assert open_prepared(folder).sha256 == original.sha256


def test_identity_changes_with_the_content(original: Prepared, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["outputs"]["train.src.npy"] = "0" * 64
    write_json(folder / "manifest.json", sealed(manifest))
    assert open_prepared(folder, verify=False).sha256 != original.sha256


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"multi30k: no prepared data$"):
        open_prepared(tmp_path / "multi30k")


@pytest.mark.parametrize(
    "name", ["train.src.npy", "val.tgt.offsets.npy", "val.tgt.txt", "tokenizer/joint.model", "report.json"]
)
def test_flipped_byte_is_noticed(folder: Path, name: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(PreparedDataError, match=f"{name}: altered or damaged"):
        open_prepared(folder)


def test_missing_file_is_noticed(folder: Path) -> None:
    (folder / "val.src.txt").unlink()
    with pytest.raises(DataError, match=r"val\.src\.txt: missing"):
        open_prepared(folder)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 99}'], ids=["empty", "no manifest", "of later"])
def test_manifest_of_another_kind_is_refused(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: (damaged, or of another version|not valid JSON)"):
        open_prepared(folder)


def test_missing_tokenizer_is_named_where_hashes_are_not_checked(folder: Path) -> None:
    shutil.rmtree(folder / "tokenizer")
    with pytest.raises(DataError, match=r"tokenizer/joint\.model: no such file$"):
        _ = open_prepared(folder, verify=False).tokenizers


def test_stored_report_is_the_one_of_preparing(original: Prepared) -> None:
    assert original.report().splits["val"].lines == 3


def test_same_config_fits(original: Prepared) -> None:
    config = config_of(original)
    check_prepared_for(original, config.model_copy(update={"model": ModelConfig(d_model=64)}))


def test_other_config_is_answered_with_the_keys_that_differ(original: Prepared) -> None:
    config = config_of(original)
    other = config.model_copy(
        update={
            "data": config.data.model_copy(update={"lowercase": True}),
            "tokenizer": config.tokenizer.model_copy(update={"vocab_size": 400}),
        }
    )
    message = r"data\.lowercase was false, is true; tokenizer\.vocab_size was 300, is 400$"
    with pytest.raises(DataError, match=message):
        check_prepared_for(original, other)


def test_no_flipped_bit_of_the_manifest_changes_what_is_read(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    small = {
        **manifest,
        "data": {},
        "tokenizer": {},
        "inputs": {},
        "outputs": {},
    }  # or there are 30,000 flips
    write_json(path, sealed(small))
    assert accepted_flips(path, lambda: open_prepared(folder, verify=False)) == []


def test_fewer_pairs_than_were_prepared_are_noticed(folder: Path) -> None:
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"val": 3', '"val": 2'))
    with pytest.raises(DataError, match=r"manifest\.json: altered or damaged: its seal does not fit"):
        open_prepared(folder)


@pytest.mark.parametrize("number", [2, 4, 10**15])
def test_another_number_of_pairs_than_there_are_is_noticed(folder: Path, number: int) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["pairs"]["val"] = number
    write_json(folder / "manifest.json", sealed(manifest))
    prepared = open_prepared(folder)
    with pytest.raises(DataError, match=rf"val has 3 pairs, but manifest\.json says {number:,}"):
        prepared.split("val")


def test_negative_pairs_are_damage(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["pairs"]["val"] = -1
    write_json(folder / "manifest.json", sealed(manifest))
    with pytest.raises(DataError, match=r"manifest\.json: damaged"):
        open_prepared(folder)


def test_lines_that_are_too_few_are_named(folder: Path) -> None:
    (folder / "val.tgt.txt").write_bytes(b"one\n")
    with pytest.raises(DataError, match=r"val\.tgt\.txt: 1 lines, but manifest\.json says 3"):
        open_prepared(folder, verify=False).lines("val", "tgt")


def test_ids_that_the_vocabulary_lacks_are_refused(folder: Path) -> None:
    ids = np.load(folder / "val.src.npy")
    np.save(folder / "val.src.npy", np.full_like(ids, 60_000))
    with pytest.raises(DataError, match=r"val\.src has ids that its vocabulary lacks"):
        open_prepared(folder, verify=False).split("val")


def test_data_of_before_seals_open_with_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    without_seal(folder / "manifest.json")
    assert open_prepared(folder).lines("val", "tgt") == ["a  dog ", "nothing", "the\x0bball"]
    (message,) = caplog.messages
    assert "to check and seal it: mt-cli prepare CONFIG, with the config" in message


def test_data_of_before_seals_can_be_sealed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = without_seal(folder / "manifest.json")
    seal_prepared(open_prepared(folder, warns=False))
    assert (folder / "manifest.json").read_bytes() == before
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["manifest.json", "val.src.txt", "val.tgt.npy", "tokenizer/joint.model"])
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_real_files_are_read(folder: Path, name: str, kind: str) -> None:
    replace_by(kind, folder / name)
    with pytest.raises(DataError, match=rf"{name}: (a link|not a regular file)"):
        open_prepared(folder)


def test_a_link_to_prepared_data_is_followed(original: Prepared, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(original.folder)
    assert open_prepared(tmp_path / "link").sha256 == original.sha256


def test_data_whose_name_is_too_long_for_any_folder_are_not_here(workspace: Workspace) -> None:
    run = replace(open_run(workspace.run), prepared=PreparedReference("x" * 300, "0" * 64))
    with pytest.raises(DataError, match=r"^x{300}: the data that .* was trained on are not here"):
        open_prepared_of(run)
