"""The documentation site: every page is in the navigation, every public name is in the API reference, no foreign host.

`make check` builds the site. These tests need no generator, except one, which is skipped without it.
"""

import importlib
import json
import re
import sys

import pytest

from doc_blocks import run_page
from places import ROOT

VERSION = "9.9.9"
EXAMPLES = ROOT / "docs/site/api_examples.md"


@pytest.fixture(scope="module", autouse=True)
def site_on_the_path():
    sys.path.insert(0, str(ROOT / "docs/site"))
    yield
    sys.path.remove(str(ROOT / "docs/site"))


def test_api_reference_has_an_entry_for_every_public_name():
    from api_pages import api_pages, entries

    pages, places = api_pages(), entries()
    packages = [
        "toolwire",
        *(f"toolwire.{p.parent.name}" for p in sorted((ROOT / "src/toolwire").glob("*/__init__.py"))),
    ]
    for package in packages:
        exported = getattr(importlib.import_module(package), "__all__", [])
        if exported and package != "toolwire.cli":
            assert f"({package}.md)" in pages["api/index.md"]
            for name in exported:
                page, _, anchor = places[f"{package}.{name}"].partition("#")
                assert f"{{ #{anchor} }}" in pages[page]


def test_every_page_of_the_api_reference_has_an_example():
    from api_examples import examples
    from api_pages import api_pages

    pages = [path.removeprefix("api/").removesuffix(".md") for path in api_pages() if path != "api/index.md"]
    assert sorted(examples()) == sorted(pages)


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", re.findall(r"^## (\S+)$", EXAMPLES.read_text(encoding="utf-8"), re.MULTILINE))
def test_example_of_the_api_reference_runs_by_itself_and_prints_its_output(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = EXAMPLES.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    (tmp_path / "example.md").write_text(section, encoding="utf-8")
    assert run_page(tmp_path / "example.md")


def test_api_reference_shows_no_internals():
    """Shared between modules of toolwire, but no page of the docs names them: the steps of a session, constructor parameters."""
    from api_pages import api_pages

    pages = api_pages()
    assert "take_over" not in pages["api/toolwire.Agent.md"]
    assert "- `observers" not in pages["api/toolwire.Agent.md"]
    assert "### add_response" not in pages["api/toolwire.run.md"]
    assert "## run_sync { #toolwire.Agent.run_sync }" in pages["api/toolwire.Agent.md"]
    assert "def encode_error" in pages["api/toolwire.wire.md"]  # a protocol: its implementers need every method
    assert not re.search(r"^#+ _", "\n".join(pages.values()), re.MULTILINE)


def test_definition_of_the_api_reference_is_that_of_the_program():
    from api_objects import definition, describe, public_names

    for package in ("toolwire", "toolwire.ir", "toolwire.run"):  # a package for each way of an import
        for name in public_names()[package]:
            value = getattr(importlib.import_module(package), name, None)
            if isinstance(value, type) and value.__name__ == name:
                assert definition(package, name).module == value.__module__
                assert describe(definition(package, name)).signature.startswith(f"class {name}")


def test_every_page_of_the_docs_is_in_the_navigation():
    from stage import site_pages

    folder = ROOT / "docs/site"  # sources of the generator
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if folder not in path.parents}
    assert pages <= set(site_pages())
    assert len(set(site_pages().values())) == len(site_pages())


def test_navigation_has_the_sections_in_the_order_of_tasks():
    from navigation import NAVIGATION

    assert list(NAVIGATION) == [
        "Start",
        "Tutorials",
        "Build agents",
        "Connect tools",
        "Translate",
        "Run a gateway",
        "Test and audit",
        "Open models",
        "Reference",
        "Migrate",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[a](agents.md#skills)", "[a](agents.md#skills)"),
        ("[a](../README.md)", "[a](start.md)"),
        ("[a](../bench/RESULTS.md#x)", "[a](bench/results.md#x)"),
        ("[a](tutorials/README.md)", "[a](tutorials/index.md)"),
        ("[a](../Makefile)", f"[a](https://github.com/toolwire/toolwire/blob/v{VERSION}/Makefile)"),
        ("[a](https://example.com/b.md)", "[a](https://example.com/b.md)"),
        ("| `a\\|b` |", "| `a|b` |"),
        ("- a\n  - b", "- a\n    - b"),
        ("```json in.json\n[a](agents.md)\n```", '\n```json title="in.json"\n[a](agents.md)\n```\n'),
        ("```python\n1\n```\n```text\n2\n```", "\n```python\n1\n```\n\n\n```text\n2\n```\n"),
    ],
)
def test_page_is_converted_for_the_site(source, expected):
    from page_conversion import convert
    from stage import site_pages

    assert convert(source, "docs/gateway.md", site_pages(), VERSION) == expected + "\n"


def test_links_of_a_page_in_a_folder_are_relative_to_its_folder_on_the_site():
    from page_conversion import convert
    from stage import site_pages

    converted = convert("[a](../audit.md) [b](README.md)", "docs/rules/TW001.md", site_pages(), VERSION)
    assert converted == "[a](../audit.md) [b](index.md)\n"


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img src="http://img.example/a.png">',
        '<img srcset="https://img.example/a.png 2x">',
        "<style>@import 'https://fonts.example/a.css'</style>",
        '<p style="background: url(https://img.example/a.png)">',
        '<div class="mermaid">',
    ],
)
def test_resource_of_another_host_is_found(page):
    from check_site import foreign_resources

    assert len(foreign_resources(page)) == 1


def test_local_resources_and_links_are_no_foreign_resources():
    from check_site import foreign_resources

    page = (
        '<script src="a.js"></script><a href="https://x.example">x</a><link rel="canonical" href="https://x.example">'
    )
    assert foreign_resources(page) == []
    assert foreign_resources("a { background: url(data:image/png;base64,AA) }", is_css=True) == []
    assert foreign_resources("@font-face { src: url('https://x.example/a.woff') }", is_css=True) == [
        "https://x.example/a.woff"
    ]


def test_pages_are_staged_with_the_version_and_an_index_for_language_models(tmp_path):
    from navigation import PAGES
    from stage import read_version, stage

    settings = json.loads(stage(tmp_path, tmp_path / "out").read_text(encoding="utf-8"))
    assert settings["site_name"] == f"toolwire {read_version()}"
    llms = (tmp_path / "pages/llms.txt").read_text(encoding="utf-8")
    assert all(f"](markdown/{path})" in llms for path in PAGES.values())
    examples = (tmp_path / "pages/examples.md").read_text(encoding="utf-8")
    assert f"examples/portable.py, toolwire {read_version()}" in examples
    assert (tmp_path / "pages/examples/portable.py").exists()


def test_charts_of_experiments_are_on_the_site(tmp_path):
    from stage import stage

    stage(tmp_path, tmp_path / "out")
    page = (tmp_path / "pages/experiments/fine-tuning.md").read_text(encoding="utf-8")
    assert "](fine-tuning.svg)" in page
    assert (tmp_path / "pages/experiments/fine-tuning.svg").exists()


def test_older_versions_stay_and_latest_redirects_to_the_newest(tmp_path):
    from build_site import write_versions

    for version in ("0.9.0", "0.10.0"):
        (tmp_path / version / "api").mkdir(parents=True)
        (tmp_path / version / "api/x.html").write_text(version)
    write_versions(tmp_path)
    assert [entry["version"] for entry in json.loads((tmp_path / "versions.json").read_text())] == ["0.10.0", "0.9.0"]
    assert 'url=../../0.10.0/api/x.html"' in (tmp_path / "latest/api/x.html").read_text()
    assert (tmp_path / "0.9.0/api/x.html").read_text() == "0.9.0"


@pytest.mark.full
@pytest.mark.parametrize(
    ("link", "problem"),
    [("b.md#part", ""), ("b.md#gone", "anchor '#gone'"), ("gone.md", "'gone.md'"), ("/b.md", "absolute link")],
)
def test_broken_link_fails_the_build(tmp_path, link, problem):
    pytest.importorskip("material", reason="`make docs` installs the generator")
    from build_site import run_generator

    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A\n\n[link]({link})\n")
    (pages / "b.md").write_text("# B\n\n## Part\n")
    (pages / "site.css").write_text("")
    settings = {
        "INHERIT": str(ROOT / "docs/site/mkdocs.yml"),
        "docs_dir": str(pages),
        "site_dir": str(tmp_path / "out"),
        "nav": ["index.md", "b.md"],
    }
    (tmp_path / "mkdocs.json").write_text(json.dumps(settings))
    found = run_generator(tmp_path / "mkdocs.json")
    assert bool(found) == bool(problem), found
    assert problem in "".join(found)


@pytest.mark.full
@pytest.mark.finding("NU8")
def test_site_from_the_cache_is_that_of_a_full_build(tmp_path, monkeypatch):
    """A changed page, changed search settings and a new link target are not taken from the cache; warnings are repeated."""
    pytest.importorskip("material", reason="`make docs` installs the generator")
    from build_site import run_generator

    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "site.css").write_text("")
    settings = {
        "INHERIT": str(ROOT / "docs/site/mkdocs.yml"),
        "docs_dir": str(pages),
        "nav": ["index.md", "b.md"],
        "hooks": [str(ROOT / "docs/site/page_cache.py")],
    }

    def build(name, cache):
        settings["site_dir"] = str(tmp_path / name)
        (tmp_path / "mkdocs.json").write_text(json.dumps(settings))
        monkeypatch.setenv("TOOLWIRE_DOCS_CACHE", str(tmp_path / "cache") if cache else "")
        found = run_generator(tmp_path / "mkdocs.json")
        files = [*sorted((tmp_path / name).rglob("*.html")), tmp_path / name / "search/search_index.json"]
        return found, {path.relative_to(tmp_path / name): path.read_bytes() for path in files if path.exists()}

    texts = {
        "index.md": [
            "# A\n\n[link](b.md#part)\n",
            "# A\n\nanother\n",
            "# A\n\n[link](b.md#gone)\n",
            "# A\n\n[l](c.md)\n",
        ],
        "b.md": ["# B\n\n## Part\n", "# B2\n", "---\nsearch:\n  boost: 2\n---\n# B2\n\n## Part\n"],
    }
    for number in (0, 1, 2, 2, 0):
        for page, versions in texts.items():
            (pages / page).write_text(versions[number])
        cached = build("cached", cache=True)
        assert cached == build("full", cache=False)
        assert bool(cached[0]) == (number == 2)
    assert 2 <= len(list((tmp_path / "cache").iterdir())) <= 4  # entries that were not used are removed


def test_searches_are_named_by_the_list():
    searches = json.loads((ROOT / "docs/site/searches.json").read_text(encoding="utf-8"))
    assert len(searches) == 40


@pytest.mark.finding("NU8")
@pytest.mark.parametrize(
    ("found", "problems"), [(["b", "c", "a"], 0), (["b", "c", "d", "a"], 1), (["b", "c", "a#part"], 0)]
)
def test_page_after_the_third_place_of_a_search_is_a_miss(found, problems):
    from check_site import misses

    assert len(misses({"query": ["a", "e"]}, {"query": found})) == problems


@pytest.mark.parametrize("fault", ["version", "name", "search", "resource"])
def test_faults_of_a_built_site_are_reported(tmp_path, fault):
    from api_pages import entries
    from check_site import problems

    (tmp_path / "api").mkdir()
    (tmp_path / "search").mkdir()
    anchors = {}
    for place in sorted(entries().values()):
        page, _, anchor = place.removesuffix(".md").partition(".md#")
        anchors.setdefault(page, []).append(anchor)
    locations = []
    for page, names in anchors.items():
        shown = "" if fault == "version" and page == "api/toolwire.run" else f"toolwire {VERSION}"
        script = (
            '<script src="https://x.example/a.js"></script>'
            if fault == "resource" and page == "api/toolwire.Agent"
            else ""
        )
        headings = "".join(f'<h2 id="{name}">' for name in names if fault != "name" or name != "toolwire.net.Model")
        (tmp_path / f"{page}.html").write_text(shown + script + headings, encoding="utf-8")
        locations.append({"location": f"{page}.html#a"})
    found = locations[1:] if fault == "search" else locations
    (tmp_path / "search/search_index.json").write_text(json.dumps({"docs": found}), encoding="utf-8")
    reported = problems(tmp_path, VERSION)
    expected = {
        "version": ["api/toolwire.run.html does not show the version 9.9.9"],
        "name": ["api/toolwire.net.html has no entry for toolwire.net.Model"],
        "search": ["api/toolwire.Agent.html is not in the search index"],
        "resource": [
            "api/toolwire.Agent.html loads https://x.example/a.js; copy the file into the site or remove the reference"
        ],
    }
    assert reported == expected[fault]
