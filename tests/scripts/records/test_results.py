"""`scripts/results`: records added, all or none, and the page written."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import git
from records import results
from records.page import BEGIN, END, PAGE, RECORDS, results_page
from records.record import Record, read_record, write_record
from records.results import add, main

from mt_cli.errors import UsageError


def test_record_is_replaced_by_the_same_weights_and_no_others(
    own_run: Path, repository: Path, record: Record
) -> None:
    (path,) = add([own_run], root=repository)
    assert path == repository / RECORDS / "tiny-fp32-seed4.json"
    shutil.rmtree(own_run / "eval" / "test-greedy")
    assert add([own_run], root=repository) == [path]
    assert len(read_record(path).evaluations) == 1
    write_record(path, replace(record, weights_sha256="0" * 64))
    with pytest.raises(UsageError, match="another training with this config and seed; --replace"):
        add([own_run], root=repository)
    add([own_run], root=repository, replaces=True)
    assert read_record(path).weights_sha256 == record.weights_sha256


def test_one_unfit_run_keeps_all_from_being_recorded(own_run: Path, repository: Path, tmp_path: Path) -> None:
    other = shutil.copytree(own_run, tmp_path / "other")
    with pytest.raises(UsageError, match=r"other: .* is the record of another run that was named"):
        add([own_run, other], root=repository)
    shutil.rmtree(other / "eval")
    with pytest.raises(UsageError, match="not evaluated"):
        add([own_run, other], root=repository)
    assert not (repository / RECORDS).exists()


def test_command_adds_the_record_and_writes_the_page(
    own_run: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "ROOT", repository)
    monkeypatch.setattr("sys.argv", ["scripts/results", "add", str(own_run)])
    main()
    out = capfd.readouterr().out
    assert out == f"{repository / RECORDS / 'tiny-fp32-seed4.json'}\n{repository / PAGE}\n"
    page = (repository / PAGE).read_text(encoding="utf-8")
    assert page.startswith(f"# Results\n\n{BEGIN}\n\n- Scores")
    assert page.endswith(f"\n\n{END}\n\nMore.\n")
    assert page == results_page(repository)


def test_command_answers_a_wrong_run_with_an_exit_code(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "ROOT", repository)
    monkeypatch.setattr("sys.argv", ["scripts/results", "add", str(repository / "nothing")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no such run folder" in capfd.readouterr().err
    assert "\n\nold\n\n" in (repository / PAGE).read_text(encoding="utf-8")


def test_shallow_history_is_warned_of(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clone = tmp_path / "clone"
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "two")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", clone)
    monkeypatch.setattr(results, "ROOT", clone)
    monkeypatch.setattr("sys.argv", ["scripts/results"])
    main()
    assert "warning: the history of this repository is cut off" in capfd.readouterr().err
