"""A model over HTTP: a page to translate on, and the API of LibreTranslate."""
