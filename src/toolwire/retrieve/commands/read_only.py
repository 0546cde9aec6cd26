"""The commands that may run without a question, with the options and operands that they may have then.

The table is the only authority: it decides about the written argument vector, whatever a man page or a completion
file declares. A command is listed only if it starts no program, uses no network, ends by itself, and reads no
configuration of the current folder. No command of Git fulfils this: a repository configures filters, signature
programs and transports, and a folder of a clone can itself be a repository.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.value import Value

_ANY = r"[^-].*"
_NONE = r"(?!)"
_VALUE = re.compile(r"(?!-(?!\d)).+", re.DOTALL)  # a separate value: no word that looks like an option


class ReadOnlyUse(Value, frozen=True):
    """The words that a read-only use may have. `operands`: a pattern that each operand matches."""

    flags: frozenset[str]
    valued: frozenset[str]
    optional: frozenset[str]
    operands: str = _ANY

    def admits(self, words: Sequence[str]) -> bool:
        """Return True if the words after the command are options and operands of this use. Groups like `-la` are not."""
        rest = iter(words)
        for word in rest:
            if word == "--":
                return all(self._is_operand(operand) for operand in rest)
            if not word.startswith("-"):
                if not self._is_operand(word):
                    return False
            elif word in self.valued:
                if _VALUE.fullmatch(next(rest, "")) is None:
                    return False
            elif word not in self.flags and not self._has_value(word):
                return False
        return True

    def _is_operand(self, word: str) -> bool:
        return re.fullmatch(self.operands, word, re.DOTALL) is not None

    def _has_value(self, word: str) -> bool:
        """Return True for `--lines=5`, `-n5` and `--color=never`, if the option takes a value."""
        name, equals, _ = word.partition("=")
        if word.startswith("--"):
            return bool(equals) and (name in self.valued or name in self.optional)
        return len(word) > 2 and word[:2] in self.valued


def is_read_only(command: Sequence[str], vector: Sequence[str]) -> bool:
    """Return True if the vector is a listed use of the command."""
    use = READ_ONLY.get(" ".join(command))
    return use is not None and tuple(vector[: len(command)]) == tuple(command) and use.admits(vector[len(command) :])


def _use(options: str, *, operands: str = _ANY) -> ReadOnlyUse:
    """Return the use with these options: `-a` has no value, `-n:` and `--lines=` have one, `--color[=]` may have one."""
    words = options.split()
    optional = frozenset(word.removesuffix("[=]") for word in words if word.endswith("[=]"))
    valued = frozenset(word.rstrip(":=") for word in words if word.endswith((":", "=")))
    flags = frozenset(word for word in words if not word.endswith((":", "=", "]"))) | optional
    return ReadOnlyUse(flags, valued, optional, operands)


_CONTAINERS = "-a --all -f: --filter= --format= -n: --last= -l --latest --no-trunc -q --quiet -s --size"
_UNITS = "-a --all -t: --type= --state= -l --full --no-pager -n: --lines= --user --failed -q --quiet --no-legend -o: --output="
READ_ONLY: dict[str, ReadOnlyUse] = {
    "ls": _use(
        "-a --all -A --almost-all -l -h --human-readable -R --recursive -S -t -r --reverse -1 -d --directory -i --inode"
        " -s --size -X -F --classify[=] --color[=] --sort= --time= -n --numeric-uid-gid -g -o -G --no-group -p"
        " --time-style= --group-directories-first --full-time -C -x -m --width= --si -L --dereference --ignore= -I: --hide="
    ),
    "cat": _use("-n --number -b --number-nonblank -s --squeeze-blank -A --show-all -E --show-ends -T --show-tabs -v"),
    "head": _use("-n: --lines= -c: --bytes= -q --quiet --silent -v --verbose -z --zero-terminated"),
    "tail": _use("-n: --lines= -c: --bytes= -q --quiet --silent -v --verbose -z --zero-terminated"),
    "wc": _use("-c --bytes -m --chars -l --lines -w --words -L --max-line-length"),
    "du": _use(
        "-a --all -h --human-readable -s --summarize -c --total -d: --max-depth= -x --one-file-system -k -m -b --bytes"
        " --si -S --separate-dirs --apparent-size -t: --threshold= --time[=] --exclude= --inodes -0 --null -L -H -P"
    ),
    "df": _use(
        "-a --all -h --human-readable -i --inodes -T --print-type -t: --type= -x: --exclude-type= -l --local -H --si"
        " -k --total --output[=] -P --portability -B: --block-size="
    ),
    "pwd": _use("-L --logical -P --physical", operands=_NONE),
    "whoami": _use("", operands=_NONE),
    "id": _use("-u --user -g --group -G --groups -n --name -r --real"),
    "groups": _use(""),
    "who": _use("-a --all -b --boot -H --heading -q --count -u --users -r --runlevel -m", operands=_NONE),
    "w": _use("-h --no-header -s --short", operands=_NONE),
    "uname": _use(
        "-a --all -s --kernel-name -n --nodename -r --kernel-release -v --kernel-version -m --machine -p"
        " --processor -i --hardware-platform -o --operating-system",
        operands=_NONE,
    ),
    "uptime": _use("-p --pretty -s --since", operands=_NONE),
    "free": _use(
        "-b --bytes -k --kibi -m --mebi -g --gibi -h --human -t --total -w --wide --si -l --lohi --mega --giga",
        operands=_NONE,
    ),
    # any other operand sets the clock; `-d` sets the daylight saving time on old BSD systems
    "date": _use("-u --utc --universal --date= -I --iso-8601[=] -R --rfc-email --rfc-3339= --reference=", operands=r"\+.*"),
    "cal": _use("-1 --one -3 --three -y --year -m --monday -s --sunday -j --julian", operands=r"\w+"),
    "hostname": _use("-s --short -I --all-ip-addresses", operands=_NONE),  # an operand sets the name
    "nproc": _use("--all --ignore=", operands=_NONE),
    "arch": _use("", operands=_NONE),
    "lscpu": _use("-e --extended[=] -p --parse[=] -J --json -a --all", operands=_NONE),
    "lsblk": _use("-a --all -f --fs -l --list -o: --output= -p --paths -J --json -b --bytes -S --scsi -t --topology", operands=_NONE),
    "lsusb": _use("-t --tree", operands=_NONE),
    "lspci": _use("-v -k -nn -n", operands=_NONE),
    "ps": _use(
        "-e -A -a -f -F -l -u: -U: -p: -o: --format= --sort= --forest -H -j -C: -T -x -w --user= --User= --pid= --ppid="
        " -g: -G: --headers --no-headers --no-heading -q: --tty= -t: --deselect -N -d -y -L -r",
        operands=r"[A-Za-z0-9,]+",
    ),
    "pgrep": _use(
        "-l --list-name -a --list-full -f --full -u: --euid= -n --newest -o --oldest -c --count -x --exact -i"
        " --ignore-case -P: --parent= -d: --delimiter= -v --inverse"
    ),
    "pidof": _use("-s -x -c"),
    "stat": _use("-f --file-system -L --dereference -t --terse -c: --format= --printf="),
    "which": _use("-a"),
    "whereis": _use("-b -m -s -u"),
    "grep": _use(
        "-i --ignore-case -v --invert-match -w --word-regexp -x --line-regexp -c --count -l --files-with-matches -L"
        " --files-without-match -m: --max-count= -o --only-matching -q --quiet -s --no-messages -n --line-number -H"
        " --with-filename -h --no-filename -A: --after-context= -B: --before-context= -C: --context= -r --recursive -R"
        " --dereference-recursive --include= --exclude= --exclude-dir= -E --extended-regexp -F --fixed-strings -G"
        " --basic-regexp -P --perl-regexp -e: --regexp= --color[=] --colour[=] -I -a --text -b --byte-offset"
    ),
    "find": _use(
        "-name: -iname: -type: -size: -mtime: -mmin: -ctime: -cmin: -atime: -amin: -newer: -maxdepth: -mindepth: -path:"
        " -ipath: -user: -group: -empty -perm: -executable -readable -writable -print -print0 -ls -regex: -iregex:"
        " -links: -inum: -xdev -mount -follow -depth -L -H -P -daystart -not -nouser -nogroup -samefile: -wholename:",
        operands=r"[^-(),!].*",
    ),
    "sort": _use(
        "-b --ignore-leading-blanks -d --dictionary-order -f --ignore-case -g --general-numeric-sort -h"
        " --human-numeric-sort -n --numeric-sort -r --reverse -k: --key= -t: --field-separator= -u --unique -V"
        " --version-sort -M --month-sort -c --check[=] -s --stable"
    ),
    "cut": _use("-b: --bytes= -c: --characters= -d: --delimiter= -f: --fields= -s --only-delimited --complement --output-delimiter="),
    "diff": _use(
        "-q --brief -s --report-identical-files -u -U: --unified[=] -c --context[=] -y --side-by-side -r --recursive -i"
        " --ignore-case -w --ignore-all-space -b --ignore-space-change -B --ignore-blank-lines -N --new-file --color[=]"
    ),
    "cmp": _use("-b --print-bytes -l --verbose -n: --bytes= -s --quiet"),
    "comm": _use("-1 -2 -3 --total --check-order"),
    "basename": _use("-a --multiple -s: --suffix= -z"),
    "dirname": _use("-z --zero"),
    "realpath": _use("-e --canonicalize-existing -m --canonicalize-missing -s --no-symlinks --relative-to="),
    "readlink": _use("-f --canonicalize -e --canonicalize-existing -n --no-newline"),
    **{name: _use("-b --binary -t --text --tag") for name in ("md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum")},
    "tree": _use("-a -d -L: -f -h -s -p -I: -P: --du --dirsfirst -C --noreport"),
    "ss": _use(
        "-t --tcp -u --udp -l --listening -n --numeric -p --processes -a --all -4 --ipv4 -6 --ipv6 -s --summary"
        " -x --unix -e --extended",
        operands=_NONE,
    ),
    "ip addr": _use("", operands=_NONE),
    "journalctl": _use(
        "-u: --unit= -n: --lines= -b --boot[=] -k --dmesg -r --reverse -p: --priority= -S: --since= -U: --until= -g:"
        " --grep= -o: --output= -x --catalog --no-pager --list-boots --disk-usage -q --quiet --user",
        operands=_NONE,
    ),
    **{
        f"systemctl {name}": _use(_UNITS)
        for name in ("status", "list-units", "list-timers", "list-sockets", "list-unit-files", "is-active", "is-enabled",
                     "is-failed", "list-dependencies")
    },
    "docker ps": _use(_CONTAINERS, operands=_NONE),
    "docker container ls": _use(_CONTAINERS, operands=_NONE),
    "docker images": _use("-a --all --digests -f: --filter= --format= --no-trunc -q --quiet"),
    "docker logs": _use("--details --since= -n: --tail= -t --timestamps --until="),
    "docker top": _use(""),
    "docker port": _use(""),
}  # fmt: skip
