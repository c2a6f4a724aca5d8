"""Material for templates: words, definitions, passages and code from free packages.

Topics and definitions are from WordNet (Debian: wordnet-base), short quotations from fortunes (Debian: fortunes,
fortunes-min), short passages from the descriptions of Debian's packages, code from Python's standard library.
They only fill prompts; no answer is taken from them.
"""

import ast
import gzip
import re
import subprocess
import sysconfig
from functools import cached_property
from pathlib import Path

# Words that prompts should avoid.
AVOID = re.compile(
    r"\b(sex\w*|rape\w*|porn\w*|genital\w*|penis|vagina\w*|suicid\w*|nazi\w*|slave\w*|whore|bitch|fuck\w*|shit\w*|"
    r"incest|erotic\w*|kill\w*|murder\w*|nigg\w*|bastard)\b", re.I)


def paragraph(text):
    return re.sub(r"\s+", " ", text).strip()


class Words:
    """Word lists and passages under `root`, the folder of the unpacked Debian packages (see README)."""

    def __init__(self, root):
        self.root = Path(root)

    def _wordnet(self, part):
        """(lemma, number of uses in tagged text) of a part of speech."""
        out = []
        for line in open(self.root / f"usr/share/wordnet/index.{part}"):
            if line.startswith(" "):
                continue
            fields = line.split()
            pointers = int(fields[3])
            out.append((fields[0].replace("_", " "), int(fields[5 + pointers])))
        return out

    def _glosses(self, part):
        for line in open(self.root / f"usr/share/wordnet/data.{part}"):
            if line.startswith(" ") or "|" not in line:
                continue
            data, gloss = line.split("|", 1)
            yield data.split()[4].replace("_", " "), int(data.split()[1]), gloss.strip()

    @cached_property
    def nouns(self):
        """Nouns that occur in tagged text, and phrases of two words."""
        good = lambda w: re.fullmatch(r"[a-z][a-z' -]{2,24}", w) and not AVOID.search(w)
        return [w for w, uses in self._wordnet("noun") if good(w) and (uses > 0 or (w.count(" ") == 1 and len(w) < 20))]

    @cached_property
    def common_nouns(self):
        return [w for w, uses in self._wordnet("noun") if uses > 1 and re.fullmatch(r"[a-z]{3,12}", w) and not AVOID.search(w)]

    @cached_property
    def verbs(self):
        return [w for w, uses in self._wordnet("verb") if uses > 1 and re.fullmatch(r"[a-z]{3,12}", w) and not AVOID.search(w)]

    @cached_property
    def adjectives(self):
        return [w for w, uses in self._wordnet("adj") if uses > 0 and re.fullmatch(r"[a-z]{3,12}", w) and not AVOID.search(w)]

    @cached_property
    def names(self):
        """Proper nouns: people, places, works (capitalised entries)."""
        found = set()
        for word, kind, _ in self._glosses("noun"):
            if kind in (15, 18) and re.fullmatch(r"[A-Z][A-Za-z' .]{3,28}", word) and not AVOID.search(word):
                found.add(word)
        return sorted(found)

    @cached_property
    def examples(self):
        """Example sentences from WordNet's glosses."""
        found = []
        for part in ("verb", "adj", "adv", "noun"):
            for _, _, gloss in self._glosses(part):
                found += [q for q in re.findall(r'"([^"]{24,120})"', gloss) if " " in q and not AVOID.search(q)]
        return [q[0].upper() + q[1:] + ("" if q[-1] in ".!?" else ".") for q in found]

    @cached_property
    def definitions(self):
        out = []
        for word, _, gloss in self._glosses("noun"):
            text = gloss.split('"')[0].split(";")[0].strip()
            if 40 < len(text) < 160 and re.fullmatch(r"[A-Za-z][A-Za-z' -]{2,24}", word) and not AVOID.search(text + word):
                out.append((word, text))
        return out

    @cached_property
    def quotes(self):
        out = []
        for name in ("wisdom", "literature", "science", "work", "people", "education", "food", "humorists", "miscellaneous",
                     "art", "computers", "cookie", "fortunes", "law", "medicine", "pets", "politics", "sports", "songs-poems", "love", "riddles"):
            path = self.root / f"usr/share/games/fortunes/{name}"
            if path.exists():
                out += [paragraph(q) for q in path.read_text(errors="replace").split("\n%\n")]
        return [q for q in out if 40 < len(q) < 420 and "<|" not in q and not AVOID.search(q)]

    @cached_property
    def passages(self):
        """Paragraphs of the descriptions of Debian packages and of the documentation on this machine."""
        text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace", check=False).stdout
        out = []
        for entry in re.findall(r"^Description(?:-en)?: (.*(?:\n .*)*)", text, re.M):
            for part in re.split(r"\n \.\n", entry):
                part = paragraph(part)
                if 120 < len(part) < 700 and part.count(".") > 1 and "<|" not in part and not AVOID.search(part):
                    out.append(part)
        docs = sorted(Path("/usr/share/doc").glob("*/*.gz")) + sorted(Path("/usr/share/doc").glob("*/README*"))
        for path in docs[:4000]:
            try:
                raw = gzip.open(path, "rt", errors="ignore").read(60000) if path.suffix == ".gz" else path.read_text(errors="ignore")[:60000]
            except (OSError, EOFError):
                continue
            if "changelog" in path.name.lower() or "copyright" in path.name.lower():
                continue
            parts = [paragraph(p) for p in re.split(r"\n\s*\n", raw)]
            out += [p for p in parts if 160 < len(p) < 700 and p.count(".") > 1 and re.match(r"[A-Z][a-z]", p)
                    and "<|" not in p and not AVOID.search(p)][:6]
        return sorted(set(out))

    @cached_property
    def functions(self):
        """Short functions of Python's standard library: (name, first line of its docstring or "", source)."""
        out = []
        for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("**/*.py")):
            if any(p in path.parts for p in ("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3")):
                continue
            try:
                text = path.read_text()
                tree = ast.parse(text)
            except (SyntaxError, ValueError, OSError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                    source = ast.get_source_segment(text, node) or ""
                    doc = (ast.get_docstring(node) or "").split("\n")[0]
                    if 80 < len(source) < 700 and source.count("\n") < 24 and "<|" not in source:
                        out.append((node.name, doc, source))
        return out
