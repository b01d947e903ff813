"""The verbs of the command line, one a file: flags in, a stage called, its result printed."""
