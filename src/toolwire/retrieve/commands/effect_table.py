"""The curated effects of common commands: refused programs, read-only uses, and the effects of the others.

A command that is not listed counts as a write. The tables are data; `effects` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.value import Value
from .command import CommandOption

__all__ = ["EFFECTS", "OPTION_EFFECTS", "READ_ONLY", "ReadOnlyUse", "is_withheld", "refusal_reason"]

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
        toolwire sqlite3 psql mysql mariadb redis-cli mongosh ftp sftp lftp less more most man info pinfo""".split(),
        _SHELLS,
    ),
}
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|php|lua|node|tclsh|wish|guile|gdb)[0-9][0-9.]*")

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
    r"(?:command|cmd|program|prog|script|shell|exec|hook|action|pager|editor|browser)s?", re.IGNORECASE
)
_NOT_PROGRAMS = frozenset({"ps", "pgrep", "pkill", "killall", "systemctl", "which", "apropos", "docker"})


class ReadOnlyUse(Value, frozen=True):
    """The options that a read-only use may have, and whether it may have operands."""

    options: frozenset[str]
    takes_operands: bool = True


def _use(options: str, *, operands: bool = True) -> ReadOnlyUse:
    return ReadOnlyUse(frozenset(options.split()), operands)


READ_ONLY: dict[str, ReadOnlyUse] = {
    "ls": _use(
        "-a --all -A --almost-all -l -h --human-readable -R --recursive -S -t -r --reverse -1 -d --directory -i --inode"
        " -s --size -X -F --classify --color --sort --time -n --numeric-uid-gid -g -o -G --no-group -p --time-style"
        " --group-directories-first --full-time -C -x -m --width --si -L --dereference --ignore -I --hide"
    ),
    "cat": _use("-n --number -b --number-nonblank -s --squeeze-blank -A --show-all -E --show-ends -T --show-tabs -v"),
    "head": _use("-n --lines -c --bytes -q --quiet --silent -v --verbose -z --zero-terminated"),
    "tail": _use("-n --lines -c --bytes -q --quiet --silent -v --verbose -z --zero-terminated -f --follow -F --retry"),
    "wc": _use("-c --bytes -m --chars -l --lines -w --words -L --max-line-length"),
    "du": _use(
        "-a --all -h --human-readable -s --summarize -c --total -d --max-depth -x --one-file-system -k -m -b --bytes"
        " --si -S --separate-dirs --apparent-size -t --threshold --time --exclude --inodes -0 --null -L -H -P"
    ),
    "df": _use("-a --all -h --human-readable -i --inodes -T --print-type -t --type -x --exclude-type -l --local -H --si"
               " -k --total --output -P --portability -B --block-size"),
    "pwd": _use("-L --logical -P --physical", operands=False),
    "whoami": _use("", operands=False),
    "id": _use("-u --user -g --group -G --groups -n --name -r --real"),
    "groups": _use(""),
    "who": _use("-a --all -b --boot -H --heading -q --count -u --users -r --runlevel -m", operands=False),
    "w": _use("-h --no-header -s --short -f --from -i --ip-addr"),
    "uname": _use("-a --all -s --kernel-name -n --nodename -r --kernel-release -v --kernel-version -m --machine -p"
                  " --processor -i --hardware-platform -o --operating-system", operands=False),
    "uptime": _use("-p --pretty -s --since", operands=False),
    "free": _use("-b --bytes -k --kibi -m --mebi -g --gibi -h --human -t --total -w --wide --si -l --lohi --mega --giga",
                 operands=False),
    "date": _use("-u --utc --universal -d --date -I --iso-8601 -R --rfc-email --rfc-3339 -r --reference"),
    "cal": _use("-1 --one -3 --three -y --year -m --monday -s --sunday -j --julian"),
    "hostname": _use("-f --fqdn --long -i --ip-address -I --all-ip-addresses -s --short -d --domain", operands=False),
    "nproc": _use("--all --ignore", operands=False),
    "arch": _use("", operands=False),
    "lscpu": _use("-e --extended -p --parse -J --json -a --all", operands=False),
    "lsblk": _use("-a --all -f --fs -l --list -o --output -p --paths -J --json -b --bytes -S --scsi -t --topology"),
    "lsusb": _use("-v --verbose -t --tree", operands=False),
    "lspci": _use("-v -vv -k -nn -n", operands=False),
    "ps": _use(
        "-e -A -a -f -F -l -u -U -p -o --format --sort --forest -H -j -C -T -x -w --user --User --pid --ppid -g -G"
        " --headers --no-headers --no-heading -q --tty -t --deselect -N -d -y -L -r"
    ),
    "pgrep": _use("-l --list-name -a --list-full -f --full -u --euid -n --newest -o --oldest -c --count -x --exact -i"
                  " --ignore-case -P --parent -d --delimiter -v --inverse"),
    "pidof": _use("-s -x -c"),
    "stat": _use("-f --file-system -L --dereference -t --terse -c --format --printf"),
    "file": _use("-b --brief -i --mime --mime-type --mime-encoding -L --dereference -h --no-dereference -k --keep-going"),
    "which": _use("-a"),
    "whereis": _use("-b -m -s -u"),
    "grep": _use(
        "-i --ignore-case -v --invert-match -w --word-regexp -x --line-regexp -c --count -l --files-with-matches -L"
        " --files-without-match -m --max-count -o --only-matching -q --quiet -s --no-messages -n --line-number -H"
        " --with-filename -h --no-filename -A --after-context -B --before-context -C --context -r --recursive -R"
        " --dereference-recursive --include --exclude --exclude-dir -E --extended-regexp -F --fixed-strings -G"
        " --basic-regexp -P --perl-regexp -e --regexp --color --colour -I -a --text -b --byte-offset"
    ),
    "find": _use(
        "-name -iname -type -size -mtime -mmin -ctime -cmin -atime -amin -newer -maxdepth -mindepth -path -ipath"
        " -user -group -empty -perm -executable -readable -writable -print -print0 -ls -regex -iregex -links -inum -xdev"
        " -mount -follow -depth -L -H -P -daystart -not -nouser -nogroup -samefile -wholename"
    ),
    "sort": _use(
        "-b --ignore-leading-blanks -d --dictionary-order -f --ignore-case -g --general-numeric-sort -h"
        " --human-numeric-sort -n --numeric-sort -r --reverse -k --key -t --field-separator -u --unique -V"
        " --version-sort -M --month-sort -c --check -s --stable"
    ),
    "uniq": ReadOnlyUse(frozenset("-c --count -d --repeated -D -u --unique -i --ignore-case -f --skip-fields -s".split()),
                        takes_operands=False),  # a second operand is the output file
    "cut": _use("-b --bytes -c --characters -d --delimiter -f --fields -s --only-delimited --complement --output-delimiter"),
    "diff": _use(
        "-q --brief -s --report-identical-files -u -U --unified -c --context -y --side-by-side -r --recursive -i"
        " --ignore-case -w --ignore-all-space -b --ignore-space-change -B --ignore-blank-lines -N --new-file --color"
    ),
    "cmp": _use("-b --print-bytes -l --verbose -n --bytes -s --quiet"),
    "comm": _use("-1 -2 -3 --total --check-order"),
    "basename": _use("-a --multiple -s --suffix -z"),
    "dirname": _use("-z --zero"),
    "realpath": _use("-e --canonicalize-existing -m --canonicalize-missing -s --no-symlinks --relative-to"),
    "readlink": _use("-f --canonicalize -e --canonicalize-existing -n --no-newline"),
    **{name: _use("-b --binary -t --text --tag") for name in ("md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum")},
    "tree": _use("-a -d -L -f -h -s -p -I -P --du --dirsfirst -C --noreport"),
    "lsof": _use("-i -p -u -c -n -P -t +D"),
    "ss": _use("-t --tcp -u --udp -l --listening -n --numeric -p --processes -a --all -4 --ipv4 -6 --ipv6 -s --summary"
               " -x --unix -e --extended -r --resolve"),
    "ip addr": _use("-4 -6 -br -brief -c -color -s", operands=False),
    "journalctl": _use(
        "-u --unit -n --lines -f --follow -b --boot -k --dmesg -r --reverse -p --priority -S --since -U --until -g"
        " --grep -o --output -x --catalog --no-pager -e --pager-end --list-boots --disk-usage -q --quiet --user",
        operands=False,
    ),
    **{
        f"systemctl {name}": _use("-a --all -t --type --state -l --full --no-pager -n --lines --user --failed -q --quiet"
                                  " --no-legend -o --output")
        for name in ("status", "list-units", "list-timers", "list-sockets", "list-unit-files", "is-active", "is-enabled",
                     "is-failed", "list-dependencies")
    },
    "docker ps": _use("-a --all -f --filter --format -n --last -l --latest --no-trunc -q --quiet -s --size", operands=False),
    "docker container ls": _use("-a --all -f --filter --format -n --last -l --latest --no-trunc -q --quiet -s --size",
                                operands=False),
    "docker images": _use("-a --all --digests -f --filter --format --no-trunc -q --quiet"),
    "docker logs": _use("--details -f --follow --since -n --tail -t --timestamps --until"),
    "docker stats": _use("-a --all --format --no-stream --no-trunc"),
    "docker top": _use(""),
    "docker port": _use(""),
    "docker version": _use("-f --format", operands=False),
    "docker info": _use("-f --format", operands=False),
    "docker inspect": _use("-f --format -s --size --type"),
    "git status": _use("-s --short -b --branch --long -u --untracked-files --ignored --porcelain --show-stash"),
    "git log": _use(
        "-n --max-count --oneline --stat --shortstat --since --after --until --before --author --committer --grep"
        " --graph --decorate --all --merges --no-merges --reverse --name-only --name-status --follow --abbrev-commit"
        " --format --pretty --date --skip --branches --tags --first-parent -i --regexp-ignore-case"
    ),
    "git branch": _use("-a --all -r --remotes -v --verbose --list -l --show-current --merged --no-merged --sort",
                       operands=False),
    "git tag": _use("-l --list -n --sort", operands=False),
    "git remote": _use("-v --verbose", operands=False),
    "git stash list": _use("", operands=False),
    "git shortlog": _use("-s --summary -n --numbered -e --email --since --after --until --before"),
    "pip list": _use("-o --outdated -u --uptodate -e --editable --format --user --local -l --not-required"),
    "pip show": _use("-f --files"),
    "dpkg-query": _use("-l --list -L --listfiles -s --status -W --show -S --search"),
}  # fmt: skip

EFFECTS: dict[str, str] = {
    **dict.fromkeys(READ_ONLY, "read"),
    **dict.fromkeys("cp mv mkdir touch ln chmod chown chgrp tee truncate install sed patch gzip gunzip bzip2 xz unxz zstd".split(), "write"),
    **dict.fromkeys("tar zip unzip split csplit mount umount mkfifo mknod rename ssh-keygen passwd useradd usermod".split(), "write"),
    **dict.fromkeys("rm rmdir shred unlink wipefs mkfs fdisk dd userdel groupdel killall pkill kill reboot shutdown".split(), "delete"),
    **dict.fromkeys("poweroff halt swapoff parted sgdisk blkdiscard".split(), "delete"),
    **dict.fromkeys("ping traceroute dig nslookup host whois curl mtr".split(), "network"),
    **dict.fromkeys("wget rsync scp apt apt-get dnf yum pacman brew snap npm pip gem cargo".split(), "network write"),
    **dict.fromkeys(("ssh", "docker run", "docker exec", "docker build", "docker container run", "docker container exec"), "network program"),
    **dict.fromkeys(("git push", "git pull", "git fetch", "git clone"), "network write program"),
    **dict.fromkeys(("git commit", "git checkout", "git merge", "git rebase", "git switch"), "write program"),
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
    "tar": {"-t": "read", "--list": "read", "--delete": "delete", "--remove-files": "delete"},
    "rsync": dict.fromkeys(("--delete", "--delete-before", "--delete-after", "--delete-excluded", "--remove-source-files"), "delete"),
    "curl": {
        **dict.fromkeys(("-o", "--output", "-O", "--remote-name", "-T", "--upload-file"), "write"),
        **dict.fromkeys(("-X", "--request", "-d", "--data", "-F", "--form", "--json"), "write"),
    },
    "git branch": dict.fromkeys(("-d", "-D", "--delete"), "delete"),
    "git tag": dict.fromkeys(("-d", "--delete"), "delete"),
    "git push": dict.fromkeys(("-d", "--delete", "-f", "--force"), "delete"),
    "mv": {"-f": "delete", "--force": "delete"},
    "zip": {"-m": "delete", "--move": "delete", "-d": "delete", "--delete": "delete"},
}  # fmt: skip


def refusal_reason(program: str) -> str | None:
    """Return the reason why a program is never offered or run; None for any other program."""
    name = program.rpartition("/")[2].lower()
    if _INTERPRETER.fullmatch(name):
        return _SHELLS
    return _REFUSED.get(name)


def is_withheld(words: Sequence[str], option: CommandOption) -> bool:
    """Return True for an option that runs a program or loads a configuration: no call may contain it."""
    listed = _WITHHELD.get(words[0])
    if listed is not None and not frozenset(listed.split()).isdisjoint(option.names):
        return True
    return words[0] not in _NOT_PROGRAMS and _PROGRAM_VALUE.fullmatch(option.placeholder) is not None
