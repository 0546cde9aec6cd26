"""Translate requests, answers, errors and tool lists: prepare a request, exchange it for its answer, report losses."""
