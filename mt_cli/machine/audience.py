"""Who a log record is for: people who watch, the log file, or both, which is the rule.

Knows records, nothing of what they say.
"""

import logging
from collections.abc import Mapping

FOR_PEOPLE: Mapping[str, str] = {"audience": "people"}
"""`extra` of a record that the log file has in another form."""
FOR_FILE: Mapping[str, str] = {"audience": "file"}
"""`extra` of a record that people are shown in another form."""


def reaches_people(record: logging.LogRecord) -> bool:
    """Whether `record` is meant for people; a filter of stderr's handler."""
    return getattr(record, "audience", "people") == "people"


def reaches_file(record: logging.LogRecord) -> bool:
    """Whether `record` is meant for the log file; a filter of its handler."""
    return getattr(record, "audience", "file") == "file"
