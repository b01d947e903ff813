"""Serving a model over HTTP: a web page, and LibreTranslate's API."""
