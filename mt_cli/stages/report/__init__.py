"""The `report` command: what is known of a run, as one page that can be sent to anybody."""
