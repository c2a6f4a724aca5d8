"""The one configuration file: config.toml, or what MTP_CONFIG names."""

import os
import tomllib
from pathlib import Path


class Config(dict):
    """Sections of the file, and the folders it names."""

    def __init__(self, path):
        super().__init__(tomllib.loads(Path(path).read_text()))
        self.root = Path(os.path.expanduser(os.environ.get("MTP_ROOT", self["folders"]["root"])))
        self.data = self.root / "data"
        self.runs = self.root / "runs"
        for folder in (self.data, self.runs):
            folder.mkdir(parents=True, exist_ok=True)
        self["data"]["material"] = str(self.root / "material" / "root")
        repository = Path(__file__).resolve().parents[2]
        self["train"]["gguf"] = os.path.expanduser(os.environ.get("SMOLLM2_GGUF", self["train"]["gguf"]))
        self["data"]["forbidden"] = [repository / p for p in self["data"]["forbidden"]]
        self["data"]["draftscope"] = os.environ.get("DRAFTSCOPE", str(repository / "target/release/draftscope"))


def load():
    return Config(os.environ.get("MTP_CONFIG", Path(__file__).resolve().parents[1] / "config.toml"))
