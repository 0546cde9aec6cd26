"""Without numpy, the package names the extra to install."""

import subprocess
import sys

from toolwire._extras import install_command


def test_missing_numpy_is_reported_with_the_extra():
    code = (
        "import sys\nsys.modules['numpy'] = None\nfrom toolwire.ir.errors import MissingExtra\n"
        "try:\n    from toolwire.retrieve import ToolIndex\n"
        "except MissingExtra as error: print(error.message, '|', error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == f"toolwire.retrieve.ToolIndex requires numpy | {install_command('retrieve')}\n"
