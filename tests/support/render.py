"""Render calls with models' own chat templates and read them back with the detected formats.

    python tests/support/render.py LLAMA_CPP/models/templates           a line per template, and every difference
    python tests/support/render.py LLAMA_CPP/models/templates --write   also writes tests/vectors/rendered_turns.json

The folder belongs to a checkout of llama.cpp; any folder of .jinja files is accepted. Only the rendered turns of the assistant
are written, never a template or the text of a prompt.
"""

import argparse
from pathlib import Path

from rendered_turns import LLAMA_CPP, PATH, TemplateVectors, check_turn, save_vectors, vectors_of_template


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of chat templates (*.jinja)")
    parser.add_argument("only", nargs="*", help="parts of file names; default: all files")
    parser.add_argument("--write", action="store_true", help=f"write {PATH.name}")
    parser.add_argument("--source", default=LLAMA_CPP, help="the origin of the templates, as written to the vectors")
    parser.add_argument("--show", action="store_true", help="show the turns")
    arguments = parser.parse_args()
    paths = [path for path in sorted(arguments.folder.glob("*.jinja")) if _is_wanted(path, arguments.only)]
    templates = {
        path.stem: vectors_of_template(path.stem, path.read_text(encoding="utf-8"), arguments.source) for path in paths
    }
    right = sum(_report(name, template, show=arguments.show) for name, template in templates.items())
    writing = sum(bool(template.turns) for template in templates.values())
    print(f"{right} of {writing} templates that write calls are read back; {len(templates)} templates in all")
    if arguments.write:
        save_vectors(templates, arguments.source)


def _is_wanted(path, only):
    return not only or any(part in path.stem for part in only)


def _report(name: str, template: TemplateVectors, *, show: bool) -> bool:
    """Print the result of a template; return True if every turn is read back."""
    wrong = {turn.case: check_turn(template.format, turn) for turn in template.turns}
    wrong = {case: differences for case, differences in wrong.items() if differences}
    formats = template.format or "unknown"
    if template.by_template != template.format:
        formats += f" (by template: {template.by_template})"
    result = "wrong" if wrong else "right" if template.turns else "no calls"
    print(f"{result:9}{name}: {formats}, {len(template.turns)} turns")
    for turn in template.turns:
        if show:
            print(f"    {turn.case}: {turn.text!r}")
        for difference in wrong.get(turn.case, ()):
            print(f"    {turn.case}: {difference}")
    for case, reason in template.omitted.items() if template.turns else ():
        print(f"    {case}: not rendered: {reason}")
    if not template.turns:
        print(f"    {next(iter(template.omitted.values()))}")
    return bool(template.turns) and not wrong


if __name__ == "__main__":
    main()
