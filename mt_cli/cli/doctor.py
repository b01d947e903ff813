"""`mt-cli doctor`."""

from dataclasses import asdict
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import Checkpoint, OutputFlags, RunPath
from mt_cli.config.schema import Device, Precision
from mt_cli.errors import CheckFailedError
from mt_cli.machine.terminal import print_result


@command(app, "doctor runs/sample")
def doctor(
    run: RunPath,
    output: OutputFlags,
    checkpoint: Checkpoint = "best",
    device: Annotated[Device, typer.Option(help="Device to check on.")] = "cpu",
    precision: Annotated[
        Precision, typer.Option(help="Precision to check in; 16 bits may differ more.")
    ] = "fp32",
) -> None:
    """Check a model's masks, cache and backends.

    What published Transformers got wrong is computed and compared; a failed check is exit code 6.
    """
    from mt_cli.evaluation.doctor import examine_run

    checks = examine_run(run, checkpoint=checkpoint, device=device, precision=precision)
    document = {"checks": [{**asdict(check), "passed": check.passed} for check in checks]}
    print_result("\n".join(str(check) for check in checks), document, as_json=output.as_json)
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise CheckFailedError(
            f"{run}: {len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}"
        )
