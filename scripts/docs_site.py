"""Hooks for mkdocs: formulas as MathML, and pages that are made when the site is built.

Made pages: the examples, the help of every command, and the files beside README that the pages link to. A page links to
them as it does in the repository (`../../examples/01_plain_loop.py`, `../CONTRIBUTING.md`); here such a link is turned
to the made page.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "licence.md",
    "SECURITY.md": "security.md",
}
THEIR_WORKER, OUR_WORKER = "https://unpkg.com/iframe-worker/shim", "styles/search-from-disk.js"
LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Teach Markdown to read formulas."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ to the made pages."""
    here = posixpath.dirname(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", here, match[1] + match[2]))
        made = made_page_of(target)
        return match[0] if made is None else f"]({posixpath.relpath(made, here or '.')})"

    return LINK.sub(turned, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take our own stand-in for workers in place of the theme's, which is fetched from elsewhere."""
    here = posixpath.dirname(page.file.dest_uri)
    return output.replace(THEIR_WORKER, posixpath.relpath(OUR_WORKER, here or "."))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """As on the pages."""
    return output.replace(THEIR_WORKER, OUR_WORKER)


def made_page_of(path: str) -> str | None:
    """The made page that shows a file of the repository."""
    if path.startswith("examples/") and path.endswith(".py"):
        return path[:-3] + ".md"
    return BESIDE.get(path)


def made_pages() -> dict[str, str]:
    """Path and text of every page that is made."""
    pages = {made: (ROOT / name).read_text(encoding="utf-8") for name, made in BESIDE.items()}
    pages["licence.md"] = "# Licence\n\n" + pages["licence.md"].replace("MIT License\n\n", "MIT License.\n\n")
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        words = (ast.get_docstring(ast.parse(code)) or "").strip()
        title = path.stem[3:].replace("_", " ").capitalize()
        body = code.split('"""', 2)[2].strip()
        run = f"Run it with `python examples/{path.name}`."
        pages[f"examples/{path.stem}.md"] = f"# {title}\n\n{words}\n\n{run}\n\n```python\n{body}\n```\n"
    pages["commands.md"] = commands_page()
    return pages


def commands_page() -> str:
    """The help of every command, as the terminal shows it."""
    sys.path.insert(0, str(ROOT / "src"))
    from click.testing import CliRunner

    from ldmnet.cli import main

    def shown(*words: str) -> str:
        text = CliRunner().invoke(main, [*words, "--help"], prog_name="ldmnet", terminal_width=96).output
        return "```text\n" + text.rstrip() + "\n```\n"

    parts = ["# Commands\n\nWhat `ldmnet COMMAND --help` shows.\n", shown()]
    for name in sorted(main.commands):
        parts.append(f"## {name}\n\n{shown(name)}")
    return "\n".join(parts)


class Formulas(Extension):
    """$...$ in a line and $$...$$ on lines of their own, as MathML."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register with Markdown: after code is out of the way."""
        md.preprocessors.register(_Displayed(md), "formulas", 20)
        md.inlinePatterns.register(_Inline(r"(?<![\\\w$])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\w$])", md), "formula", 185)


class _Displayed(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        def stored(match: re.Match[str]) -> str:
            formula = f'<div class="formula">{ElementTree.tostring(mathml(match[1].strip(), "block"), "unicode")}</div>'
            return f"\n\n{self.md.htmlStash.store(formula)}\n\n"

        return re.sub(r"(?ms)^\$\$\s*$(.*?)^\$\$\s*$", stored, "\n".join(lines)).split("\n")


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:  # type: ignore[override]
        return mathml(m[1], "inline"), m.start(0), m.end(0)


def mathml(formula: str, display: str) -> ElementTree.Element:
    """A formula's tree, without name spaces, and with bars as high as what stands between them."""
    tree = ElementTree.fromstring(convert(formula, display=display))
    for node in tree.iter():
        node.tag = node.tag.split("}")[-1]
        if node.tag == "mo" and node.text in ("|", "\N{DOUBLE VERTICAL LINE}"):
            node.attrib.update(stretchy="false", lspace="0", rspace="0")
    return tree
