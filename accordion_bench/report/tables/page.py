"""A Sheet as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import html

from accordion_bench import foreign
from accordion_bench.report.tables.sheet import DASH, Block, Sheet

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #57606a; --rule: #d0d7de; --paper: #ffffff; --band: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9aa4af; --rule: #3d444d; --paper: #0d1117; --band: #161b22 }
}
body { margin: 2.5rem auto; max-width: 84rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .25rem }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
p.conditions, ul { color: var(--quiet); font-size: .9rem }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; width: 100%;
  border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink) }
th, td { padding: .35rem .5rem; text-align: right; white-space: nowrap }
th.word, td.word { text-align: left }
thead th { border-bottom: 1px solid var(--ink); font-weight: 600; vertical-align: bottom; white-space: normal }
tbody th { font-weight: 600 }
tbody + tbody { border-top: 1px solid var(--rule) }
tbody tr:hover { background: var(--band) }
td.none { color: var(--quiet) }
@media print { body { margin: 0; max-width: none } }
""".strip()


def escape(text: str) -> str:
    """Text that a browser shows as it is."""
    return html.escape(foreign.escape(text))


def page(sheet: Sheet) -> str:
    """The .html file: the title's first part as heading, its conditions, a table per block, the notes as a list."""
    heading, _, conditions = sheet.title.partition(" · ")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(heading)}</title>",
        f"<style>\n{STYLE}\n</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(heading)}</h1>",
        f'<p class="conditions">{escape(conditions)}</p>',
    ]
    for block in sheet.blocks:
        if block.heading:
            parts.append(f"<h2>{escape(block.heading)}</h2>")
        parts += ['<div class="wide">', *_table(block), "</div>"]
    if sheet.notes:
        parts += ["<ul>", *(f"<li>{escape(note)}</li>" for note in sheet.notes), "</ul>"]
    return "\n".join([*parts, "</body>", "</html>", ""])


def _table(block: Block) -> list[str]:
    """One tbody per group, whose name spans its lines."""
    shown = block.shown
    heads = [f'<th scope="col"{_class(block, index)}>{escape(block.columns[index].title)}</th>' for index in shown]
    lines = ["<table>", f"<thead><tr>{''.join(heads)}</tr></thead>"]
    starts = [place for place, line in enumerate(block.lines) if line.first]
    for start, stop in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        lines.append("<tbody>")
        for place in range(start, stop):
            line = block.lines[place]
            group = line.cells[shown[0]].text
            span = f'<th scope="rowgroup" class="word" rowspan="{stop - start}">{escape(group)}</th>'
            cells = [_cell(block, index, line.cells[index].text) for index in shown[1:]]
            lines.append(f"<tr>{span if place == start else ''}{''.join(cells)}</tr>")
        lines.append("</tbody>")
    return [*lines, "</table>"]


def _cell(block: Block, index: int, text: str) -> str:
    if text == DASH:
        return f'<td class="none" title="no value">{DASH}</td>'
    return f"<td{_class(block, index)}>{escape(text)}</td>"


def _class(block: Block, index: int) -> str:
    return "" if block.columns[index].numeric else ' class="word"'
