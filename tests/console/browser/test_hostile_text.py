"""Sixty hostile strings in every view: nothing of them runs, in the page or in copied programs."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from console_pages import IMAGE_REQUEST, chat_stream, put, show, wait_for_clipboard
from playwright.sync_api import expect

from conftest import ROOT

MARK = "globalThis.pwned=1"
HOSTILE = [
    f"<script>{MARK}</script>",
    f"</script><script>{MARK}</script>",
    f"<ScRiPt>{MARK}</sCrIpT>",
    f"<img src=x onerror={MARK}>",
    f'<img src=x onerror="{MARK}">',
    f"<svg onload={MARK}>",
    f"<svg><script>{MARK}</script></svg>",
    f"<body onload={MARK}>",
    f'<iframe src="javascript:{MARK}"></iframe>',
    f'<iframe srcdoc="<script>parent.{MARK}</script>">',
    f'<a href="javascript:{MARK}">x</a>',
    f"javascript:{MARK}",
    f"JaVaScRiPt:{MARK}",
    f"data:text/html,<script>{MARK}</script>",
    f"vbscript:{MARK}",
    f'"><script>{MARK}</script>',
    f"'><script>{MARK}</script>",
    f"--><script>{MARK}</script><!--",
    f"]]><script>{MARK}</script>",
    f"</textarea><script>{MARK}</script>",
    f"</style><script>{MARK}</script>",
    f"</title><script>{MARK}</script>",
    f'" onfocus={MARK} autofocus x="',
    f"' onmouseover={MARK} x='",
    f"<math><mtext><script>{MARK}</script>",
    f"<template><script>{MARK}</script></template>",
    f"<details open ontoggle={MARK}>",
    f"<input autofocus onfocus={MARK}>",
    f"<style>@import 'javascript:{MARK}'</style>",
    f"<link rel=stylesheet href='javascript:{MARK}'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{MARK}'>",
    f"<base href='javascript:{MARK}//'>",
    f"<object data='javascript:{MARK}'>",
    f"<form action='javascript:{MARK}'><button>x",
    f"${{{MARK}}}",
    f"${{constructor.constructor('{MARK}')()}}",
    f"{{{{constructor.constructor('{MARK}')()}}}}",
    f"<%= {MARK} %>",
    f"`;{MARK};`",
    f"`${{{MARK}}}`",
    f"';{MARK};'",
    f'";{MARK};"',
    f"\\';{MARK};//",
    f'\\";{MARK};//',
    f"*/{MARK}/*",
    f"\u2028{MARK}\u2029",
    f"\n{MARK}\n",
    f"\r\n{MARK}\r\n",
    "\u202egnirts\u202c desrever",
    "\u2066isolated\u2069\u200f\u200e",
    "nul\u0000nul",
    "\ufeffmark \u200b\u200d hidden",
    "\x1b[31mred\x1b[0m \x07",
    "$(touch PWNED)",
    "`touch PWNED`",
    "'; touch PWNED; '",
    '"; touch PWNED; "',
    "\\'; touch PWNED #",
    "$'\\ntouch PWNED\\n'",
    "\nEOF\ntouch PWNED\n",
    "| touch PWNED & touch PWNED ; touch PWNED > PWNED",
    "!! !touch ~ * ? {a,b} %PATH% @PWNED",
    "''' + __import__('os').system('touch PWNED') + '''",
    '""" + __import__("os").system("touch PWNED") + """',
    "{__import__('os').system('touch PWNED')}",
    "\\N{BULLET} \\x41 %s %(x)s {0}",
    "__proto__",
    "constructor",
    "😀 \U000e0041",
]


def test_there_are_sixty_different_strings():
    assert len(set(HOSTILE)) == len(HOSTILE) >= 60


def request_with(texts):
    """A request whose names, texts, arguments, keys and descriptions are hostile."""
    request = json.loads(json.dumps(IMAGE_REQUEST))
    request["system"] = "\n".join(texts)
    request["model"] = texts[0]
    request["metadata"] = {"user_id": texts[0]}
    request["tools"] += [
        {
            "name": f"tool_{at}",
            "description": text,
            "input_schema": {
                "type": "object",
                "properties": {text: {"type": "string", "description": text, "enum": [text]}},
            },
        }
        for at, text in enumerate(texts)
    ]
    request["messages"][0]["content"] = [{"type": "text", "text": text} for text in texts]
    request["messages"][1]["content"] = [
        {"type": "tool_use", "id": f"toolu_{at}", "name": f"tool_{at}", "input": {text: text}}
        for at, text in enumerate(texts)
    ]
    request["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": text} for at, text in enumerate(texts)
    ]
    request["stop_sequences"] = texts[:3]
    return request


def assert_unharmed(page):
    assert page.evaluate("globalThis.pwned") is None
    assert page.locator("script").count() == 1
    assert (
        page.locator("iframe, object, embed, form, base, template, #app style, #app link, #app meta, #app img").count()
        == 0
    )
    assert page.evaluate(
        "[...document.querySelectorAll('*')].every(each => each.getAttributeNames().every(name => !name.startsWith('on') && (name !== 'href' || each.getAttribute(name) === '#main' || !document.body.contains(each))))"
    )


def test_nothing_runs_in_translate(open_page):
    page = open_page()
    show(page, "translate", json.dumps(request_with(HOSTILE)))
    expect(page.locator(".column .row").first).to_be_visible()
    viewer = page.locator(".source .viewer")
    viewer.focus()
    for key in ("Home", *["PageDown"] * 30):
        viewer.press(key)
        assert_unharmed(page)
    for loss in page.locator(".loss").all()[:10]:
        loss.click()
    for text in HOSTILE:
        put(page, "translate", text)
    put(page, "translate", json.dumps({text: text for text in HOSTILE}))
    expect(page.locator("#view-translate .problem, #view-translate .column").first).to_be_visible()
    assert_unharmed(page)


def test_nothing_runs_in_the_other_views(open_page):
    page = open_page("streams")
    put(page, "streams", chat_stream(json.dumps({"a": HOSTILE}), text="".join(HOSTILE)))
    page.locator("#view-streams").get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Last step").click()
    for key in ("Home", *["ArrowRight"] * 5):
        page.locator("main").press(key)
    expect(page.locator(".call").first.or_(page.locator(".events").first).first).to_be_attached()
    assert_unharmed(page)
    page.keyboard.press("3")
    for text in (
        "".join(HOSTILE),
        f"<tool_call>{json.dumps({'name': HOSTILE[0], 'arguments': {text: text for text in HOSTILE}})}</tool_call>",
    ):
        show(page, "formats", text)
        expect(page.locator("#view-formats .part").first).to_be_visible()
        assert_unharmed(page)
    page.keyboard.press("4")
    tools = [
        {
            "name": text,
            "description": text,
            "inputSchema": {"type": "object", "properties": {text: {"const": text, "pattern": text}}},
        }
        for text in HOSTILE
    ]
    put(page, "tools", json.dumps(tools))
    expect(
        page.locator("#view-tools .matrix-row, #view-tools .problem")
        .nth(1)
        .or_(page.locator("#view-tools .problem"))
        .first
    ).to_be_visible()
    assert_unharmed(page)


def test_nothing_runs_from_a_shared_link(open_page, console):
    page = open_page()
    for text in HOSTILE[:12]:
        state = {"input": text, "source": text, "kind": text, "strict": text, "family": text, "__proto__": {"pwned": 1}}
        encoded = page.evaluate(
            "state => btoa(unescape(encodeURIComponent(JSON.stringify(state)))).replace(/\\+/g, '-').replace(/\\//g, '_').replace(/=+$/, '')",
            state,
        )
        page.goto(f"{console.origin}/#/translate?s=j{encoded}")
        expect(page.locator("#view-translate .problem, #view-translate .column").first).to_be_visible()
        assert_unharmed(page)


def test_invisible_characters_are_shown(open_page):
    page = open_page()
    show(
        page,
        "translate",
        json.dumps(
            {"model": "a\u202eb\u0000c\u200bd", "messages": [{"role": "user", "content": "x"}]}, ensure_ascii=False
        ),
    )
    expect(page.locator(".source .invisible").first).to_have_text("U+202E")


@pytest.fixture(scope="module")
def programs(browser, console):
    """The copied curl, Python and TypeScript of a request full of hostile strings, with its JSON."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=console.origin)
    page = context.new_page()
    page.goto(console.address)
    page.locator(".column .row").first.wait_for()
    texts = [text for text in HOSTILE if "\u0000" not in text]  # a shell has no NUL; JSON escapes it in the others
    show(page, "translate", json.dumps(request_with([*texts, "nul\u0000nul"])))
    column = page.locator('.column[data-column="openai_chat"]')
    expect(column.locator(".row").first).to_be_visible()
    column.locator(".copies button").first.click()
    found = {"json": json.loads(wait_for_clipboard(page, "{"))}
    for name in ("curl", "Python", "TypeScript"):
        page.evaluate("navigator.clipboard.writeText('')")
        column.get_by_role("button", name=f"as {name}").click()
        expect(page.locator(".announcer")).to_contain_text(f"{name} copied")
        found[name] = page.evaluate("navigator.clipboard.readText()")
    context.close()
    return found


def run(command, folder, **options):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options)


def test_copied_curl_runs_nothing_and_sends_the_request(programs, tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/curl"  # prints its arguments instead of sending them
    fake.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps([sys.argv[1:], sys.stdin.read() if not sys.stdin.isatty() else '']))\n"
    )
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OPENAI_API_KEY": "secret"}
    for shell in ("sh", "bash"):
        done = run([shutil.which(shell), "-c", programs["curl"]], tmp_path, env=environment, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        arguments, piped = json.loads(done.stdout)
        bodies = [text for text in [*arguments, piped] if text.startswith("{")]
        assert json.loads(bodies[0]) == programs["json"]
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_copied_python_runs_nothing_and_has_the_request(programs, tmp_path):
    (tmp_path / "urllib").mkdir()
    code = f"import ast, json\ntree = ast.parse({programs['Python']!r})\nprint(sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree)), 'system' in [getattr(node, 'attr', '') for node in ast.walk(tree)])"
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "False"
    # run it with an HTTP library that only records
    shim = "import urllib.request, json\nclass R:\n    status = 200\n    def __enter__(s): return s\n    def __exit__(s, *a): pass\n    def read(s, *a): return b'{}'\n    def __iter__(s): return iter([])\ndef fake(q, *a, **k):\n    open('sent.json', 'wb').write(q.data)\n    return R()\nurllib.request.urlopen = fake\n"
    (tmp_path / "urllib").rmdir()
    done = run(
        [sys.executable, "-c", shim + programs["Python"]], tmp_path, env={**os.environ, "OPENAI_API_KEY": "secret"}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "sent.json").read_bytes()) == programs["json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sent.json"]


def test_copied_typescript_runs_nothing_and_sends_the_request(programs, tmp_path):
    source = tmp_path / "program.mts"
    source.write_text(programs["TypeScript"], encoding="utf-8")
    compiler = ROOT / ".console/node_modules/.bin/tsc"
    done = run(
        [
            compiler,
            "--target",
            "es2023",
            "--module",
            "esnext",
            "--moduleResolution",
            "bundler",
            "--types",
            "",
            "--outDir",
            "out",
            source.name,
        ],
        tmp_path,
    )
    compiled = tmp_path / "out/program.mjs"
    assert compiled.exists(), done.stdout  # it lacks node's types, which does not stop the compiler
    shim = "globalThis.fetch = async (url, options) => { console.log('SENT' + options.body); return new Response('{}') };\n"
    compiled.write_text(shim + compiled.read_text(encoding="utf-8"), encoding="utf-8")
    node = shutil.which("node")
    done = run([node, compiled], tmp_path, env={**os.environ, "OPENAI_API_KEY": "secret"})
    sent = [line for line in done.stdout.split("\n") if line.startswith("SENT")]
    assert sent, done.stdout + done.stderr
    assert json.loads(sent[0][4:]) == programs["json"]
    assert not (tmp_path / "PWNED").exists()
