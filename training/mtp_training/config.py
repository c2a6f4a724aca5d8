"""The configuration file: config.toml, or the file that MTP_CONFIG names."""

import json
import os
import tomllib
from pathlib import Path


class Config(dict):
    """The sections of the file, with `section.key=value` overrides (values as JSON or plain text), and its folders."""

    def __init__(self, path, overrides=()):
        super().__init__(tomllib.loads(Path(path).read_text()))
        for override in overrides:
            place, value = override.split("=", 1)
            section, key = place.split(".", 1)
            assert key in self[section], f"{path} has no setting {place}"
            self[section][key] = parsed(value)
        self.root = Path(os.path.expanduser(os.environ.get("MTP_ROOT", self["folders"]["root"])))
        self.data = self.root / "data"
        self.runs = self.root / "runs"
        for folder in (self.data, self.runs):
            folder.mkdir(parents=True, exist_ok=True)
        repository = Path(__file__).resolve().parents[2]
        self["data"]["material"] = os.path.expanduser(self["data"]["material"])
        self["data"]["forbidden"] = [repository / p for p in self["data"]["forbidden"]]
        self["data"]["draftscope"] = os.environ.get("DRAFTSCOPE", str(repository / "target/release/draftscope"))
        self["train"]["gguf"] = os.path.expanduser(os.environ.get("DRAFTSCOPE_MODEL", self["train"]["gguf"]))


def parsed(value):
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def load(overrides=()):
    return Config(os.environ.get("MTP_CONFIG", Path(__file__).resolve().parents[1] / "config.toml"), overrides)
