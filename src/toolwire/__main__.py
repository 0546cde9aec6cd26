"""The command `toolwire`, and `python -m toolwire`."""

import signal
import sys


def main() -> int:
    """Run the command line and return its exit code.

    Until its modules are imported, Ctrl-C ends the process as a signal: an exception would be printed with its traceback,
    and can crash the interpreter in the middle of a C extension.
    """
    is_usual = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # a shell may ignore it for a background job
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli.main import main as run_command

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_command()


if __name__ == "__main__":
    sys.exit(main())
