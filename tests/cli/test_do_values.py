"""Values of a request for a model that invents values."""

import pytest

from toolwire.cli.do.candidates import request_values, task_words


@pytest.mark.parametrize(
    ("request_text", "values"),
    [
        ("stop the container web", ("web",)),
        ("copy report.pdf to backup.pdf", ("report.pdf", "backup.pdf")),
        ("show the first 5 lines of data.csv.", ("5", "data.csv")),
        ('search for "two words" in ~/notes', ("two words", "~/notes")),
        ("download https://example.com/a.zip", ("https://example.com/a.zip",)),
        ("list all my running containers", ()),
        ("make a link named current", ("current",)),
        ("search for TODO", ("TODO",)),
        ("what is using port 8080 now", ("8080",)),
    ],
)
def test_values_are_names_numbers_paths_and_quotations(request_text, values):
    assert request_values(request_text, task_words()) == values


def test_values_are_bounded():
    assert len(request_values(" ".join(f"file{number}.txt" for number in range(100)))) == 12
