"""Tables: runs gathered by row, laid out on a sheet, rendered as Markdown, LaTeX, CSV and HTML."""
