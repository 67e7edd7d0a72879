"""A Sheet as Markdown, CSV and LaTeX. The same Sheet gives the same bytes."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from accordion_bench.foreign import escape
from accordion_bench.report.tables.sheet import DASH, Block, Column, Sheet

HEADING_WIDTH = 14  # characters of a column's title on one line, in LaTeX


def markdown(sheet: Sheet) -> str:
    """What the terminal shows and the .md file holds: title, blocks, notes."""
    parts = [marked(sheet.title)]
    for block in sheet.blocks:
        columns = [block.columns[index] for index in block.shown]
        align = ["right" if column.numeric else "left" for column in columns]
        grid = pipe_table([column.title for column in columns], _texts(block), align)
        parts.append(f"{marked(block.heading)}\n\n{grid}" if block.heading else grid)
    if sheet.notes:
        parts.append("\n".join(f"- {marked(note)}" for note in sheet.notes))
    return "\n\n".join(parts) + "\n"


def pipe_table(headings: Sequence[str], lines: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    """A Markdown table without spare width; align holds "left" or "right" per column."""
    rows = [[marked(text).replace("|", "\\|") for text in line] for line in (headings, *lines)]
    # tabulate pads headings by two blanks each; as a first row they are not padded, but stand under the rule.
    rule, heading, *rest = tabulate(rows, tablefmt="pipe", colalign=align, disable_numparse=True).split("\n")
    return "\n".join([heading, rule, *rest])


def marked(text: str) -> str:
    """Text that Markdown shows as it is: no tags, no control characters."""
    return re.sub(r"<(?=[A-Za-z/!?])", r"\\<", escape(text))


def csv_text(sheet: Sheet) -> str:
    """One line per row of the table with every field of every block, unrounded; empty where there is no value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field for block in sheet.blocks for column in block.columns for field in column.fields])
    for lines in zip(*(block.lines for block in sheet.blocks), strict=True):
        cells = [
            pair
            for block, line in zip(sheet.blocks, lines, strict=True)
            for pair in zip(block.columns, line.cells, strict=True)
        ]
        writer.writerow([_cell(value, column) for column, cell in cells if column.fields for value in cell.values])
    return out.getvalue()


def _cell(value: str, column: Column) -> str:
    """A spreadsheet would take words that begin like a formula for one; an apostrophe before them keeps them words."""
    text = escape(value)
    return f"'{text}" if not column.numeric and text != DASH and text.startswith(("=", "+", "-", "@")) else text


def latex(sheet: Sheet) -> str:
    """A table environment per block, for the packages booktabs and adjustbox."""
    parts = ["% needs \\usepackage{booktabs,adjustbox}"]
    title = re.sub(r"^Table (?=\d)", "The paper's Table ", sheet.title)  # LaTeX numbers tables by itself
    for number, block in enumerate(sheet.blocks):
        caption = title if number == 0 else f"{block.heading}. {title}"
        name = re.sub(r"[^\w-]", "-", sheet.name)
        label = name if number == 0 else f"{name}-{number + 1}"
        parts.append(_latex_block(block, caption, label, sheet.notes if number == 0 else ()))
    return "\n".join(parts)


def _latex_block(block: Block, caption: str, label: str, notes: tuple[str, ...]) -> str:
    columns = [block.columns[index] for index in block.shown]
    lines = [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{tex(caption)}}}",
        f"\\label{{tab:{label}}}",
        "\\begin{adjustbox}{max width=\\linewidth}",
        f"\\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}",
        "\\toprule",
        " & ".join(map(_heading, columns)) + r" \\",
        "\\midrule",
    ]
    for index, (line, texts) in enumerate(zip(block.lines, _texts(block), strict=True)):
        if line.first and index:
            lines.append("\\addlinespace")
        lines.append(" & ".join(tex(text) for text in texts) + r" \\")
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{adjustbox}"]
    if notes:
        lines.append("\\par\\smallskip\\raggedright\\footnotesize")
        lines += [f"{tex(note)}\\par" for note in notes]
    return "\n".join([*lines, "\\end{table}", ""])


def _heading(column: Column) -> str:
    """A long title on several lines, since it would make its column wider than the numbers do."""
    parts = re.split(r" (?=\()", column.title)  # a unit stays whole
    lines = [tex(line) for part in parts for line in textwrap.wrap(part, HEADING_WIDTH, break_on_hyphens=False)]
    if len(column.title) <= HEADING_WIDTH:
        return tex(column.title)
    stacked = r" \\ ".join(lines)
    return rf"\shortstack[{'r' if column.numeric else 'l'}]{{{stacked}}}"


def _texts(block: Block) -> list[list[str]]:
    """Cells for people; a group's name stands on its first line only."""
    return [
        ["" if place == 0 and not line.first else line.cells[index].text for place, index in enumerate(block.shown)]
        for line in block.lines
    ]


TEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "†": r"$\dagger$",
    "×": r"$\times$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"\textbar{}",
}


def tex(text: str) -> str:
    """Text with everything escaped that LaTeX would read as a command; a lone dash becomes an en dash."""
    if text == DASH:
        return "--"
    escaped = "".join(TEX.get(sign, sign) for sign in escape(text))
    escaped = re.sub(r"(?<= )-(?= |$)", "--", escaped)
    return re.sub(r"(?<![\w.])([+-]\d[\d.,]*)", r"$\1$", escaped)
