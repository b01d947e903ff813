"""The model card: a run's README.md, written after training and evaluation."""

import json
import logging
from importlib.resources import files
from importlib.resources.abc import Traversable

from jinja2 import Environment, TemplateError

from mt_cli.errors import MtCliError
from mt_cli.evaluation.kept import kept_evaluations, validation_of
from mt_cli.machine.files import read_file, write_atomically
from mt_cli.model.numpy_model import num_parameters
from mt_cli.runs.run import Run

log = logging.getLogger(__name__)
MARK = "mt-cli writes this when the run is trained or evaluated; without this line it stays."


def write_card(run: Run) -> None:
    """Write the README.md of `run`, unless a user has replaced it.

    A failure is only logged as a warning; training and evaluation must not fail because of it.
    """
    path = run.folder / "README.md"
    try:
        if not path.exists() or read_file(path).startswith(f"---\n# {MARK}\n".encode()):
            write_atomically(path, card(run).encode(errors="backslashreplace"))
    except (MtCliError, OSError, TemplateError, TypeError, ValueError) as error:
        log.warning("%s: not updated: %s", path, error)


def card(run: Run) -> str:
    """The model card of the best checkpoint, in Markdown."""
    checkpoint = run.best_checkpoint
    data = run.config.data
    # The licence is only known for runs trained on nothing but the bundled sample.
    learnt_alone = run.manifest.init_from is None and not run.manifest.distil_from
    is_sample = data.corpus == ("sample",) and not data.more and learnt_alone
    return render_markdown(
        files(__package__).joinpath("card.md"),
        mark=MARK,
        name=" ".join(run.folder.resolve().name.split()),
        languages=dict.fromkeys((data.src_lang, data.tgt_lang)),
        license="mit" if is_sample else None,
        evaluations=kept_evaluations(run, checkpoint=checkpoint),
        validation=validation_of(run, checkpoint),
        checkpoint=checkpoint,
        run=run,
        num_parameters=num_parameters(run.parameter_shapes),
        status=run.status(),
        environment=run.environment(),
    )


def render_markdown(template: Traversable, **values: object) -> str:
    """Render the Markdown file `template` with `values`."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["json"] = json.dumps
    environment.filters["code"] = lambda text: f"`{text}`".replace("|", r"\|")
    return environment.from_string(template.read_text(encoding="utf-8")).render(values)
