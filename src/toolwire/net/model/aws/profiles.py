"""The shared files of AWS: `~/.aws/config` and `~/.aws/credentials`, or the files that the environment names.

A profile is a section of both files: `[profile NAME]` or `[default]` in the first, `[NAME]` in the second, whose values
win. The format is in https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ....ir.errors import ConfigError

_MAX_BYTES = 1024 * 1024  # a profile has a few hundred bytes
_PROFILE_VARIABLES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")  # in botocore's order


class AwsProfile(NamedTuple):
    """A profile. `config` and `credentials` are the values in the two files."""

    name: str
    config: Mapping[str, str]
    credentials: Mapping[str, str]

    def get(self, key: str) -> str | None:
        """Return a value; a value in the credentials file wins."""
        return self.credentials.get(key) or self.config.get(key) or None


def read_profile(environment: Mapping[str, str], name: str | None) -> AwsProfile:
    """Read a profile: `name`, or else the environment's, or `default`, which may be missing.

    Raise ConfigError if a file cannot be read, or has no profile of that name.
    """
    wanted = name or next(filter(None, (environment.get(variable) for variable in _PROFILE_VARIABLES)), None)
    found = wanted or "default"
    config = {}
    for title, values in _read_sections(environment, "AWS_CONFIG_FILE", "config").items():
        if _profile_name(title) == found:
            config = values
    credentials = _read_sections(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials").get(found)
    if wanted is not None and not config and credentials is None:
        hint = "`aws configure list-profiles` lists the profiles"
        raise ConfigError(f"the shared files of AWS have no profile {wanted!r}", hint=hint)
    return AwsProfile(found, config, credentials or {})


def region_of_profile(environment: Mapping[str, str], name: str | None) -> str | None:
    """Return the region of a profile, or None. The files are read once, because a gateway asks for each model.

    Raise ConfigError as `read_profile`.
    """
    variables = ("HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", *_PROFILE_VARIABLES)
    return _read_region(tuple((variable, environment.get(variable, "")) for variable in variables), name)


@lru_cache(16)
def _read_region(variables: tuple[tuple[str, str], ...], name: str | None) -> str | None:
    return read_profile(dict(variables), name).get("region")


def _profile_name(title: str) -> str | None:
    """Return the name in a section's title of the config file, or None if it is no profile."""
    if title == "default":
        return title
    try:
        words = shlex.split(title)
    except ValueError:
        return None
    return words[1] if len(words) == 2 and words[0] == "profile" else None


def _read_sections(environment: Mapping[str, str], variable: str, name: str) -> dict[str, dict[str, str]]:
    """Read one of the files; a missing file has no sections. Raise ConfigError, without any value, if it is invalid."""
    home = Path(environment.get("HOME") or "~").expanduser()
    path = environment.get(variable, "")
    file = home / path[2:] if path.startswith("~/") else Path(path) if path else home / ".aws" / name
    try:
        with file.open("rb") as stream:
            text = stream.read(_MAX_BYTES + 1).decode()
        if len(text) > _MAX_BYTES:
            raise ConfigError(f"{file} exceeds {_MAX_BYTES} bytes")
        parser = RawConfigParser()
        parser.read_string(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (Error, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f" in line {line}"
        raise ConfigError(f"{file} is not a valid file of AWS{where}: {type(error).__name__}") from None
    # A value that begins with a line break is a nested section, such as `s3 =`.
    return {
        title: {key: value for key, value in parser.items(title) if not value.startswith("\n")}
        for title in parser.sections()
    }
