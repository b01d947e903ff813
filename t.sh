#!/bin/bash
cd /work/next; export PYTHONPATH=/work/next
V=/work/main/.venv/bin
$V/ruff format -q . ; $V/ruff check --fix -q . ; $V/python -m mypy 2>&1 | tail -4
$V/python -m pytest -q -n 2 "$@" 2>&1 | tail -${LINES_OUT:-12}
