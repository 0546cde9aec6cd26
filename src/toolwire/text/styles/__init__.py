"""Styles: parsers and renderers of calls that several formats share, each configured by data."""
