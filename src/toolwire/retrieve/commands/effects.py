"""The effect of a command line, judged with curated tables of common commands.

The tables have the refused programs, the withheld options, the effects of other commands, and the commands that may run
without a question, with the options and operands that they may have then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...ir.tools import Effect
from ...ir.value import Value
from .command import CommandOption, SystemCommand

# The commands that may run without a question, with the options and operands that they may have then.
#
# The table is the only authority: it decides about the written argument vector, whatever a man page or a completion
# file declares. A command is listed only if it starts no program, uses no network, ends by itself, and reads no
# configuration of the current folder. No command of Git fulfils this: a repository configures filters, signature
# programs and transports, and a folder of a clone can itself be a repository.


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


# The curated effects of common commands: refused programs, withheld options, and the effects of the others.
#
# A command that is not listed counts as a write. The tables are data; `effects` reads them. The commands that may run
# without a question are in `read_only_table`.


_PRIVILEGES = "it changes the user or the privileges"
_SHELLS = "it runs any program that its arguments name"
_REFUSED: dict[str, str] = {
    **dict.fromkeys("sudo su doas pkexec run0 runuser sg newgrp setpriv capsh sudoedit visudo".split(), _PRIVILEGES),
    **dict.fromkeys(
        """sh bash dash zsh fish ksh mksh csh tcsh ash rbash pwsh xonsh nu elvish busybox toybox python perl ruby node nodejs
        deno bun php lua luajit tclsh expect guile gdb lldb awk gawk mawk nawk original-awk osascript rscript julia
        irb erl iex ghci scala jshell java javaw ed ex vi vim nvim vimdiff view emacs nano pico joe mcedit
        xargs env nohup nice ionice timeout time watch setsid stdbuf chrt taskset strace ltrace perf script screen tmux
        parallel entr flock unshare nsenter chroot systemd-run systemd-nspawn batch at crontab daemonize start-stop-daemon
        ld.so ld-linux.so socat nc ncat netcat telnet rlogin rsh expect unbuffer faketime fakeroot proot eval exec command
        builtin source run-parts dbus-send gdbus busctl m4 make gmake ninja cmake scons ssh-agent dpkg-buildpackage
        toolwire sqlite3 psql mysql mariadb redis-cli mongosh ftp sftp lftp less more most man info pinfo
        editor rvim rview gvim gview evim rgvim rgview vimtutor pager zless zmore bzless bzmore xzless xzmore lesspipe
        sensible-editor sensible-pager sensible-browser sensible-terminal select-editor x-terminal-emulator xterm setarch
        linux32 linux64 i386 x86_64 uname26 prlimit choom runcon dbus-run-session dbus-launch systemd-inhibit systemd-cat
        logsave rtcwake scriptlive scriptreplay valgrind fakeroot-sysv fakeroot-tcp debugfs jrunscript cpan pdb pdb3 ipython
        pydoc prove memusage sotruss catchsegv git-shell vipw vigr wish xvfb-run bwrap numactl sshpass autoexpect gdbserver
        gdbtui run-mailcap see xdg-open open ctest rake bundle irb npx uvx pipx tox pytest doas.real crun runc firejail
        torsocks torify proxychains proxychains4 caffeinate cpulimit softlimit chpst envdir setuidgid daemon dtach abduco
        byobu mosh eatmydata ltrace.real entr""".split(),
        _SHELLS,
    ),
}
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|node|tclsh|wish|guile|gdb|pydoc|pdb|irb|ipython)[0-9][0-9.]*"
)
_EDITOR = re.compile(r"(?:vim|vi|nvim|nano|emacs|ed|joe|less|more)[.-][a-z0-9.-]+")
# one program under several names; `busybox` depends on the name, so that its links are judged by their own names
_SAME = {
    "slogin": "ssh", "podman": "docker", "nerdctl": "docker", "docker.io": "docker", "pip3": "pip", "pipx": "pip", "gtar": "tar",
    "bsdtar": "tar", "star": "tar", "gfind": "find", "fdfind": "fd", "gsort": "sort", "gsplit": "split", "gsed": "sed",
    "egrep": "grep", "fgrep": "grep", "rgrep": "grep", "ggrep": "grep", "gdate": "date", "wget2": "wget", "wcurl": "curl",
}  # fmt: skip
_MULTIPLE = frozenset({"busybox", "toybox", "coreutils"})

# options that run a program, load code or replace the configuration, in any spelling; never offered to a model
_WITHHELD: dict[str, str] = {
    "find": "-exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "-x -X --exec --exec-batch",
    "tar": "--checkpoint-action --to-command -I --use-compress-program -F --info-script --new-volume-script"
    " --rsh-command --rmt-command -P --absolute-names",
    "git": "-c --config-env --exec-path -C --git-dir --work-tree --upload-pack --receive-pack --exec -x --ext-diff"
    " --textconv -O --open-files-in-pager --upload-archive --tool --extcmd -u --template --config",
    "rsync": "-e --rsh --rsync-path --remote-option -M --daemon --config",
    "ssh": "-o -F -O -I -S -E -L -R -D -W -w",
    "scp": "-o -F -S -D",
    "sort": "--compress-program",
    "split": "--filter",
    "curl": "-K --config --libcurl --engine --proxy-cert --netrc-file",
    "wget": "-e --execute --use-askpass --config -i --input-file",
    "zip": "-TT --unzip-command -T --test",
    "sed": "-f --file -s",
    "grep": "-f --file",
    "date": "-s --set -f --file",
    "pip": "--global-option --config-settings --python --cert",
    "docker": "--privileged --config --tlscacert --tlscert --tlskey --host -H -v --volume --mount --device --cap-add"
    " --pid --userns --security-opt --entrypoint",
    "journalctl": "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --root --image --directory -D --file",
    "systemctl": "-H --host -M --machine --root --image",
}
_PROGRAM_VALUE = re.compile(
    r"(?:\w*(?:command|cmd|program)|prog|script|shell|exec|execute|hook|action|pager|editor|browser|plugin|load)s?",
    re.IGNORECASE,
)
# the operand `command` of these is a subcommand, or the name of a running program
_HAS_SUBCOMMANDS = frozenset(
    """systemctl hostnamectl timedatectl localectl networkctl loginctl systemd-analyze git pip gpg gpgsm docker kubectl apt
    apt-get ip pidof pgrep which whereis type""".split()
)
_PROGRAM_NAME = re.compile(r"command|cmd|program|exec|execute|script|shell")
_ARGUMENTS = frozenset({"arg", "args", "argument", "arguments", "command_args", "command_arguments", "options"})
_NOT_PROGRAMS = frozenset({"ps", "pgrep", "pkill", "killall", "systemctl", "which", "apropos", "docker"})


EFFECTS: dict[str, str] = {
    **dict.fromkeys(READ_ONLY, "read"),
    **dict.fromkeys("cp mv mkdir touch ln chmod chown chgrp tee truncate install patch gzip gunzip bzip2 xz unxz zstd".split(), "write"),
    **dict.fromkeys("tar zip unzip split csplit mount umount mkfifo mknod rename ssh-keygen passwd useradd usermod".split(), "write"),
    **dict.fromkeys("rm rmdir shred unlink wipefs mkfs fdisk dd userdel groupdel killall pkill kill reboot shutdown".split(), "delete"),
    **dict.fromkeys("poweroff halt swapoff parted sgdisk blkdiscard".split(), "delete"),
    **dict.fromkeys("ping traceroute dig nslookup host whois curl mtr".split(), "network"),
    **dict.fromkeys("wget rsync scp apt apt-get dnf yum pacman brew snap npm pip gem cargo".split(), "network write"),
    **dict.fromkeys(("ssh", "docker run", "docker exec", "docker build", "docker container run", "docker container exec"), "network program"),
    "sed": "write program",  # the command `e` of a script
    **dict.fromkeys(("git status", "git log", "git shortlog", "git diff", "git show", "git stash list"), "read program"),
    **dict.fromkeys(("git branch", "git tag", "git remote"), "write program"),
    **dict.fromkeys(("git push", "git pull", "git fetch", "git clone"), "network write program"),
    **dict.fromkeys(("git submodule", "git submodule foreach", "git bisect", "git bisect run", "git commit", "git checkout", "git merge", "git rebase", "git switch"), "write program"),
    **dict.fromkeys(("git clean", "git reset", "git branch -d", "git stash drop", "git stash clear"), "delete"),
    **dict.fromkeys(("docker rm", "docker rmi", "docker container rm", "docker image rm", "docker volume rm"), "delete"),
    **dict.fromkeys(("docker system prune", "docker image prune", "docker volume prune", "docker container prune"), "delete"),
    **dict.fromkeys(("docker pull", "docker push", "docker login"), "network write"),
    **dict.fromkeys(("docker stop", "docker start", "docker restart", "docker kill", "docker pause"), "write"),
    **dict.fromkeys(("systemctl start", "systemctl stop", "systemctl restart", "systemctl enable", "systemctl disable"), "write"),
}  # fmt: skip
"""Effects by command, most specific first: `git clean` before `git`."""

OPTION_EFFECTS: dict[str, dict[str, str]] = {
    "find": {"-delete": "delete"},
    "sort": {"-o": "write", "--output": "write"},
    "tar": {"--delete": "delete", "--remove-files": "delete"},
    "rsync": dict.fromkeys(("--delete", "--delete-before", "--delete-after", "--delete-excluded", "--remove-source-files"), "delete"),
    **{name: dict.fromkeys(("-f", "--follow", "-F", "--retry"), "read") for name in ("tail", "docker logs", "journalctl")},  # without an end
    "date": {"-d": "read"},
    "hostname": dict.fromkeys(("-f", "--fqdn", "--long", "-i", "--ip-address", "-d", "--domain"), "network"),
    "ss": {"-r": "network", "--resolve": "network"},
    "ping": dict.fromkeys("-c -i -w -W -n -4 -6 -q -s -t".split(), "network"),
    "dig": dict.fromkeys("-4 -6 -t -x -p".split(), "network"),
    "curl": {
        **dict.fromkeys("-s --silent -S --show-error -I --head -L --location -v --verbose -i --include".split(), "network"),
        **dict.fromkeys("-f --fail -m --max-time -A --user-agent -H --header --compressed -G --get".split(), "network"),
        **dict.fromkeys(("-o", "--output", "-O", "--remote-name", "-T", "--upload-file"), "write"),
        **dict.fromkeys(("-X", "--request", "-d", "--data", "-F", "--form", "--json"), "write"),
    },
    "git branch": dict.fromkeys(("-d", "-D", "--delete"), "delete"),
    "git tag": dict.fromkeys(("-d", "--delete"), "delete"),
    "git push": dict.fromkeys(("-d", "--delete", "-f", "--force"), "delete"),
    "mv": {"-f": "delete", "--force": "delete"},
    "zip": {"-m": "delete", "--move": "delete", "-d": "delete", "--delete": "delete"},
}  # fmt: skip

ARCHIVE_LIST = frozenset({"-t", "--list"})
ARCHIVE_LIST_OPTIONS = ARCHIVE_LIST | frozenset(
    "-f --file -v --verbose -z --gzip -j --bzip2 -J --xz --zstd -a --auto-compress -C --directory --wildcards".split()
)
"""Options with which `tar --list` only reads."""


def refusal_reason(program: str, file: str | None = None) -> str | None:
    """Return the reason why a program is never offered or run; None for any other program.

    `file`: the file of the program without links. `editor` is a link to an editor.
    """
    own = _refused_name(program)
    if own is not None or file is None:
        return own
    target = file.rpartition("/")[2]
    return None if target in _MULTIPLE else _refused_name(target)


def _refused_name(program: str) -> str | None:
    name = program.rpartition("/")[2].lower()
    if _INTERPRETER.fullmatch(name) or _EDITOR.fullmatch(name):
        return _SHELLS
    return _REFUSED.get(name)


def usual_name(program: str) -> str:
    """Return the name under which the tables list a program: `slogin` is `ssh`."""
    return _SAME.get(program, program)


def starts_programs(command: SystemCommand) -> bool:
    """Return True if the operands are a program and its arguments: `prlimit [options] command [argument...]`.

    Commands that the table lists with this effect, such as `docker exec`, are shown with it.
    """
    if "program" in EFFECTS.get(command.name, "").split() or command.name in _HAS_SUBCOMMANDS:
        return False
    named = [number for number, one in enumerate(command.operands) if _PROGRAM_VALUE.fullmatch(one.name)]
    after = command.operands[named[0] :] if named else ()
    return any(one.name in _ARGUMENTS or (one.repeats and _PROGRAM_VALUE.fullmatch(one.name)) for one in after)


def is_withheld(words: Sequence[str], option: CommandOption) -> bool:
    """Return True for an option that runs a program or loads a configuration: no call may contain it."""
    program = usual_name(words[0])
    listed = _WITHHELD.get(program, "").split()
    if any(_is_same_option(name, one) for name in option.names for one in listed):
        return True
    if program in _NOT_PROGRAMS:
        return False
    parts = [part for name in (option.placeholder, *option.names) for part in re.split(r"[^A-Za-z0-9]+", name)]
    pattern = _PROGRAM_NAME if option.style == "flag" else _PROGRAM_VALUE  # a page may lack the value
    return any(pattern.fullmatch(part) for part in parts)


def has_withheld_letters(words: Sequence[str]) -> bool:
    """Return True if a program has withheld options of one letter: they could follow another one, as in `-cI`."""
    listed = _WITHHELD.get(usual_name(words[0]), "").split()
    return any(len(name) == 2 for name in listed)


def _is_same_option(name: str, withheld: str) -> bool:
    """Return True for equal names, and for abbreviations of long ones, which GNU programs accept."""
    if name.startswith("--") and withheld.startswith("--") and len(name) > 4:
        return name.startswith(withheld) or withheld.startswith(name)
    return name == withheld


_ORDER = ("read", "write", "delete", "network", "program")
_LABELS = {
    "read": "reads",
    "write": "writes",
    "delete": "deletes or ends",
    "network": "uses the network",
    "program": "may run other programs",
}


class CommandEffect(Value, frozen=True):
    """The effect of a command line. `is_known`: the command is in the tables. `is_read_only`: it may run unasked."""

    kinds: tuple[str, ...]
    is_known: bool = True
    is_read_only: bool = False

    @property
    def text(self) -> str:
        """A description for a person."""
        shown = ", ".join(_LABELS[kind] for kind in self.kinds)
        return shown if self.is_known else f"unknown, may write (assumed: {shown})"


def judge_effect(words: Sequence[str], vector: Sequence[str], options: Collection[str] = ()) -> CommandEffect:
    """Return the effect of a written command line. `options`: the names of its options, without their values."""
    if is_read_only(words, vector):
        return CommandEffect(("read",), is_read_only=True)
    words, vector = (usual_name(words[0]), *words[1:]), (usual_name(words[0]), *vector[1:])
    listed = _find_listed(words)
    if listed is None:
        return CommandEffect(("write",), is_known=False)
    name, kinds = listed
    effects = OPTION_EFFECTS.get(name, {})
    matched = [effects[option] for option in options if option in effects]
    found = set(kinds).union(*(one.split() for one in matched))
    if _is_unlisted(words, vector, options):
        found.add("write")
    elif _lists_archive(name, vector, options):
        found = {"read"}
    only_reads = found <= {"read", "program"}
    return CommandEffect(tuple(kind for kind in _ORDER if kind in found and (kind != "read" or only_reads)))


def _is_unlisted(words: Sequence[str], vector: Sequence[str], options: Collection[str]) -> bool:
    """Return True for a use of a reading or sending command that no table describes: it may write."""
    name = " ".join(words)
    effects = OPTION_EFFECTS.get(name, {})
    use = READ_ONLY.get(name)
    if use is None:
        return EFFECTS.get(name) == "network" and not effects.keys() >= set(options)
    rest = [word for word in vector[len(words) :] if word.partition("=")[0] not in effects]
    return len(rest) == len(vector) - len(words) or not use.admits(rest)


def _lists_archive(name: str, vector: Sequence[str], options: Collection[str]) -> bool:
    """Return True for `tar --list` of a local file. A name with a colon is a file of another machine."""
    is_list = name == "tar" and not ARCHIVE_LIST.isdisjoint(options) and ARCHIVE_LIST_OPTIONS.issuperset(options)
    return is_list and not any(":" in word for word in vector)


def _find_listed(words: Sequence[str]) -> tuple[str, frozenset[str]] | None:
    """Return the longest prefix of the words in the table, with its effects. A subcommand is not its program."""
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        kinds = EFFECTS.get(name)
        if kinds is not None and not (length < len(words) and name in READ_ONLY):
            return name, frozenset(kinds.split())
    return None


def default_effect(command: SystemCommand) -> Effect:
    """Return the effect of the tool of a command: `read` only if the table lists it."""
    return "read" if command.name in READ_ONLY else "write"
