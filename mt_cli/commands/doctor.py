"""`mt-cli doctor`."""

from typing import Annotated

import typer

from mt_cli.commands.flags import Checkpoint, Json, Quiet, RunPath, Verbose
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging
from mt_cli.config import Device, Precision
from mt_cli.errors import CheckFailedError


@exit_codes
def doctor(
    run: RunPath,
    checkpoint: Checkpoint = "best",
    slow: Annotated[
        bool, typer.Option("--slow", help="Also overfit eight pairs, from fresh weights.")
    ] = False,
    device: Annotated[Device, typer.Option("--device", help="Device to check on.")] = "cpu",
    precision: Annotated[
        Precision,
        typer.Option("--precision", help="Precision to check in; bf16 may differ more, by its rounding."),
    ] = "fp32",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check a model's masks, cache and backends.

    What published Transformers got wrong is computed and compared; a failed check is exit code 6.
    """
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.doctor import examine_run

    checks = examine_run(run, checkpoint=checkpoint, is_slow=slow, device=device, precision=precision)
    print_result(
        "\n".join(str(check) for check in checks),
        {"checks": [check.as_json() for check in checks]},
        as_json=as_json,
    )
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise CheckFailedError(f"{run}: {len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}")
