#!/usr/bin/env python3
"""Mends links of the book that mdBook leaves dead, and says which are dead even so.

mdBook names README.md index.html, but not in links that lead there; and it takes files beside the book (ARCHITECTURE.md, examples) for
pages of it. Such links lead to the file in the tree that the book was built in. usage: book_links.py BOOK, the directory target/book.
"""

import html
import os
import re
import sys
from urllib.parse import unquote

LINK = re.compile(r'(href|src)="([^"#]+)((?:#[^"]*)?)"')
ELSEWHERE = re.compile(r"[a-z]+:|//|/")


def target(page, link, book):
    """Where `link` of `page` leads, relative to the page; None if nowhere."""
    here = os.path.dirname(page)
    if os.path.exists(os.path.join(here, link)):
        return link
    index = re.sub(r"README\.html$", "index.html", link)
    if os.path.exists(os.path.join(here, index)):
        return index
    # Pages lie in the book as their sources do in docs/.
    tree = os.path.dirname(os.path.dirname(book))
    source = os.path.join(tree, "docs", os.path.relpath(here, book), link)
    for file in (source, re.sub(r"\.html$", ".md", source)):
        if os.path.exists(file):
            return os.path.relpath(os.path.normpath(file), here)
    return None


def main():
    book = os.path.abspath(sys.argv[1])
    dead = []
    for directory, _, names in os.walk(book):
        # The page that is shown for a missing one has no place of its own.
        for name in (n for n in names if n.endswith(".html") and n != "404.html"):
            page = os.path.join(directory, name)

            def mend(match, page=page):
                link = unquote(html.unescape(match[2]))
                if ELSEWHERE.match(link):
                    return match[0]
                found = target(page, link, book)
                if found is None:
                    dead.append(f"{os.path.relpath(page, book)}: {link}")
                    return match[0]
                return match[0] if found == link else f'{match[1]}="{html.escape(found)}{match[3]}"'

            with open(page, encoding="utf-8") as file:
                text = file.read()
            mended = LINK.sub(mend, text)
            if mended != text:
                with open(page, "w", encoding="utf-8") as file:
                    file.write(mended)
    # One page has all others in it, with links that are relative to theirs.
    dead = [line for line in dead if not line.startswith("print.html")]
    if dead:
        sys.exit("links of the book lead nowhere:\n" + "\n".join(dead))


main()
