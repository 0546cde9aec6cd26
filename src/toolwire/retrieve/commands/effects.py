"""The effect of a command line, judged with curated tables of common commands.

The tables have the refused programs, the withheld options, and the effects of other commands. A command that is not
listed counts as a write. `read_only` has the commands that may run without a question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...ir.tools import Effect
from ...ir.value import Value
from .command import CommandOption, SystemCommand
from .read_only import READ_ONLY, is_read_only

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


_ORDER = ("read", "write", "delete", "network", "program", "unknown")
_LABELS = {
    "read": "reads",
    "write": "writes",
    "delete": "deletes or ends",
    "network": "uses the network",
    "program": "may run other programs",
    "unknown": "unknown effect",
}


class CommandEffect(Value, frozen=True):
    """The effect of a command line.

    `is_known`: the command and its use are in the tables; an option that is not has the kind `unknown`. `is_read_only`:
    it may run unasked.
    """

    kinds: tuple[str, ...]
    is_known: bool = True
    is_read_only: bool = False

    @property
    def text(self) -> str:
        """A description for a person."""
        shown = ", ".join(_LABELS[kind] for kind in self.kinds)
        return shown if self.is_known or "unknown" in self.kinds else f"unknown, may write (assumed: {shown})"


def judge_effect(words: Sequence[str], vector: Sequence[str], options: Collection[str] = ()) -> CommandEffect:
    """Return the effect of a written command line.

    `options`: the names of its options, without their values. An unknown command writes. An effect other than reading
    or running a program replaces `read`.
    """
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
        found.add("unknown")
    elif _lists_archive(name, vector, options):
        found = {"read"}
    only_reads = found <= {"read", "program"}
    ordered = tuple(kind for kind in _ORDER if kind in found and (kind != "read" or only_reads))
    return CommandEffect(ordered, is_known="unknown" not in found)


def _is_unlisted(words: Sequence[str], vector: Sequence[str], options: Collection[str]) -> bool:
    """Return True for a use of a reading or sending command that no table describes: its effect is unknown."""
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
