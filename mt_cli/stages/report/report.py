"""The `report` command: gathers what is known of a run, or of two, and writes it as a page.

Joins findings and a page; knows neither how they are found nor how it looks.
"""

from collections.abc import Sequence
from pathlib import Path

from mt_cli.artefacts.files import write_atomically
from mt_cli.config import Backend, Device
from mt_cli.errors import UsageError
from mt_cli.stages.report.findings import Findings
from mt_cli.stages.report.gather import gather_findings
from mt_cli.stages.report.page import render_page
from mt_cli.translation.options import SearchOptions

ENDINGS = (".html", ".htm")


def write_report(
    run_dirs: Sequence[Path],
    *,
    output: Path,
    splits: Sequence[str] = (),
    num_examples: int = 30,
    data_dir: Path | None = None,
    checkpoint: str = "best",
    backend: Backend = "scratch",
    device: Device = "auto",
    threads: int = 0,
    search: SearchOptions | None = None,
) -> Findings:
    """Write a page about one run, or two side by side, to `output`; gives what it shows.

    Raises:
        UsageError: `output` is no .html file, or there is no such run, split or checkpoint.
        DataError: a file is damaged, or the data are gone and nothing is kept of them.
        ResourceError: the page cannot be written.
    """
    if output.suffix.lower() not in ENDINGS:
        raise UsageError(f"{output}: a report is a page; name a file that ends in {' or '.join(ENDINGS)}")
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file in it")
    findings = gather_findings(
        run_dirs,
        splits=splits,
        num_examples=num_examples,
        data_dir=data_dir,
        checkpoint=checkpoint,
        backend=backend,
        device=device,
        threads=threads,
        search=search,
    )
    write_atomically(output, render_page(findings).encode())
    return findings
