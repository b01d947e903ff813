"""Write the generated parts of docs/; a test fails where they are not what this makes of the code."""

import sys
from pathlib import Path

from records.page import PAGE, results_page

from generated_docs.config_page import config_page
from generated_docs.file_map import mapped_files, with_file_map

ROOT = Path(__file__).resolve().parents[2]


def pages() -> dict[Path, str]:
    """Text of each page that is made from the code, in whole or in part."""
    design = ROOT / "docs" / "design.md"
    return {
        ROOT / "docs" / "config.md": config_page(),
        design: with_file_map(design.read_text(encoding="utf-8"), mapped_files(ROOT)),
        ROOT / PAGE: results_page(ROOT),
    }


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
