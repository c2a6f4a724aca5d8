#!/usr/bin/env python3
"""Writes the licences of everything that is linked into the program, from `cargo metadata`.

    scripts/licenses.py TARGET OUT

Crates that only compile or test others are left out. Each text stands once, below the crates that have it. A crate without
a licence file is listed with the licence that its manifest names; one without either ends the script with an error.
"""

import json
import pathlib
import subprocess
import sys

PROGRAM = "draftscope"
# What is in the program and is no crate: its font.
BUNDLED = {"the bundled font": pathlib.Path(__file__).parent.parent / "assets/font/OFL.txt"}
# Names of licence files, in capitals, and longest file that is one.
BEGINNINGS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
LONGEST = 200_000


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def linked(data):
    """Packages that the program links: those that normal dependencies lead to, macros included."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    waiting = [package for package in packages if packages[package]["name"] == PROGRAM]
    found = set()
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    own = set(data["workspace_members"])
    return sorted((packages[package] for package in found - own), key=lambda it: (it["name"], it["version"]))


def texts(package):
    """The licence files of a package."""
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package.get("license_file") else []
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name.upper().startswith(BEGINNINGS)]
    for file in dict.fromkeys(named + files):
        if file.is_file() and file.stat().st_size <= LONGEST:
            yield "\n".join(line.rstrip() for line in file.read_text(errors="replace").strip().splitlines())


def main(target, out):
    packages = linked(metadata(target))
    if not packages:
        sys.exit("no dependencies were found")
    owners = {}
    lines = [f"{PROGRAM} for {target} links these {len(packages)} crates; their licences follow.", ""]
    for package in packages:
        name = f"{package['name']} {package['version']}"
        own = list(texts(package))
        if not package.get("license") and not own:
            sys.exit(f"{name} names no licence")
        lines.append(f"{name}: {package.get('license') or 'see its text'}")
        for text in own:
            owners.setdefault(text, []).append(name)
    for name, file in BUNDLED.items():
        owners[file.read_text().strip()] = [name]
    for text, names in sorted(owners.items(), key=lambda item: item[1]):
        lines += ["", "=" * 100, *names, "-" * 100, text]
    pathlib.Path(out).write_text("\n".join(lines) + "\n")
    print(f"{out}: {len(packages)} crates, {len(owners)} texts")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
