#!/usr/bin/env python3
"""Licences of everything that is linked into the program, with their texts: licences.py PACKAGE TARGET > FILE.

A static binary holds its dependencies' code, and their licences want their notices beside it."""

import json
import pathlib
import subprocess
import sys


def linked(metadata, package):
    """Packages that reach the program by dependencies that are neither for its tests nor for its build."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    of_name = {p["name"]: p["id"] for p in metadata["packages"]}
    found, wanted = set(), [of_name[package]]
    while wanted:
        here = wanted.pop()
        if here in found:
            continue
        found.add(here)
        for dep in nodes[here]["deps"]:
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                wanted.append(dep["pkg"])
    return sorted((p for p in metadata["packages"] if p["id"] in found), key=lambda p: (p["name"], p["version"]))


def main():
    package, target = sys.argv[1:]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    own = set(metadata["workspace_members"])
    texts = {}
    packages = [p for p in linked(metadata, package) if p["id"] not in own]
    print("Software that is part of this program, and its licences. Where a package has a choice, any of them may be taken.\n")
    for p in packages:
        print(f"{p['name']} {p['version']}: {p['license']}; {p.get('repository') or 'no address'}")
        directory = pathlib.Path(p["manifest_path"]).parent
        names = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")
        for file in sorted(f for f in directory.iterdir() if f.is_file() and f.name.upper().startswith(names)):
            text = file.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{p['name']} {p['version']} ({file.name})")
    for text, users in texts.items():
        print("\n" + "-" * 100 + "\n" + ", ".join(users) + ":\n\n" + text)


main()
