"""The folders of the project."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
