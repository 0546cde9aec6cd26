"""Secrets in links of the console, which the page replaces before it encodes a document."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import toolwire

SHARE = Path(toolwire.__file__).parent / "gateway/console/static/share.js"
PROGRAM = """
const { redact } = await import(process.argv[1]);
let text = "";
for await (const piece of process.stdin) text += piece;
console.log(JSON.stringify(JSON.parse(text).map((one) => redact(one).text)));
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")


def redacted(*texts):
    command = [shutil.which("node"), "--input-type=module", "--eval", PROGRAM, SHARE.as_uri()]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


CHANGED = {
    "DB_PASSWORD=hunter2": "DB_PASSWORD=[redacted]",
    "export PGPASSWORD=hunter2 && psql": "export PGPASSWORD=[redacted] && psql",
    "env A=1 MY_API_KEY=abc123; make": "env A=1 MY_API_KEY=[redacted]; make",
    'mysql --password "x y" -h db': 'mysql --password "[redacted]" -h db',
    "mysql --password 'x y' -h db": "mysql --password '[redacted]' -h db",
    "mysql --password 1234 -h db": "mysql --password [redacted] -h db",
    "mysql --password=1234 -h db": "mysql --password=[redacted] -h db",
    "DB_PASSWORD: hunter2": "DB_PASSWORD: [redacted]",
    '{"password": 1234, "port": 5432}': '{"password": "[redacted]", "port": 5432}',
    '{"db_passwd":-1.5e3}': '{"db_passwd":"[redacted]"}',
    "login(password=1234, user=5)": "login(password=[redacted], user=5)",
}
KEPT = (
    '{"max_tokens": 100, "token_count": 5, "logprobs": true}',
    "if token == other: pass",
    "SELECT passwords FROM table",
    '{"password": null, "secrets": [1]}',
    'toolwire --max-tokens 5 "a prompt"',
    "PATH=/usr/bin make",
)


def nested(text):
    """Return the text as an argument of a call: JSON in a string of JSON."""
    return json.dumps({"arguments": json.dumps({"command": f"cd x\n{text}"})})


def command_of(document):
    return json.loads(json.loads(document)["arguments"])["command"].partition("\n")[2]


def test_assignments_quoted_options_and_numbers_are_replaced():
    assert dict(zip(CHANGED, redacted(*CHANGED), strict=True)) == CHANGED


def test_the_same_in_a_string_of_json_is_replaced():
    found = redacted(*map(nested, CHANGED))
    assert {text: command_of(document) for text, document in zip(CHANGED, found, strict=True)} == CHANGED


def test_other_text_is_unchanged():
    assert tuple(redacted(*KEPT)) == KEPT
    assert tuple(command_of(document) for document in redacted(*map(nested, KEPT))) == KEPT


@pytest.mark.parametrize(
    "piece", ["A_PASSWORD=", '\\"password\\":', '--password "', "\\\\\\", "--token ", 'password="']
)
def test_hostile_text_is_searched_in_linear_steps(piece):
    """The node process would need hours for quadratic steps, and the test would run into its own limit."""
    assert redacted(piece * 20_000, "end")[1] == "end"
