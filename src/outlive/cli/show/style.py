"""The look that all pages share, and the frame of a page that needs nothing from outside."""

from __future__ import annotations

from html import escape

# A page that is told to load nothing can't load anything by mistake.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

LIGHT = """
  --page: #fbfbfa; --panel: #ffffff; --line: #e3e2de; --text: #1d1d1b; --soft: #6b6a66; --faint: #f3f2ef;
  --target: #d3f2dc; --target-text: #0c4a22; --target-line: #2f9e57; --special: #7a3fb5; --sign: #a8a6a0;
  --one: #1f77b4; --two: #d9662b; --bad: #c62828; --warn-back: #fff4d6; --warn-text: #6b4e00;"""
DARK = """
  --page: #161615; --panel: #1e1e1d; --line: #353431; --text: #e8e7e3; --soft: #a09e98; --faint: #282725;
  --target: #173d25; --target-text: #b7f0c8; --target-line: #3fae68; --special: #c79bf0; --sign: #6f6d68;
  --one: #6db3ea; --two: #f0935e; --bad: #ff7b72; --warn-back: #3a2f0e; --warn-text: #f3d98b;"""
VARIABLES = f"""
:root {{ color-scheme: light dark;{LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{{DARK} }} }}
"""
STYLE = (
    VARIABLES
    + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 34px 0 10px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
pre { background: var(--faint); border-radius: 8px; padding: 12px 14px; overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; }
td, th { padding: 3px 18px 3px 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; } td:first-child { white-space: nowrap; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--soft); }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.warn { background: var(--warn-back); color: var(--warn-text); border-radius: 8px; padding: 8px 12px; margin: 8px 0; }
#tip { position: fixed; pointer-events: none; z-index: 9; display: none; background: var(--text); color: var(--page);
  padding: 4px 8px; border-radius: 6px; font: 12px/1.45 ui-monospace, Menlo, Consolas, monospace; white-space: pre; }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
"""
)

# `tip(event, text)` shows a small box at the pointer; without text it hides it.
TIP = """
const tipBox = document.getElementById('tip');
function tip(event, text) {
  if (!text) { tipBox.style.display = 'none'; return; }
  tipBox.textContent = text; tipBox.style.display = 'block';
  const box = tipBox.getBoundingClientRect();
  tipBox.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
  tipBox.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10
    : event.clientY + 18) + 'px';
}
"""


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """A whole page: `body` is HTML; `style` and `script` come after the shared ones."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{text(title)}</title><style>{STYLE}{style}</style></head>\n"
        f'<body><main>{body}</main><div id="tip"></div><script>{TIP}{script}</script></body></html>\n'
    )


def text(value: object) -> str:
    """A value as HTML text. Lone surrogates, which no file can hold, become question marks."""
    return escape(str(value).encode("utf-8", "replace").decode())


def table(rows: dict[str, object]) -> str:
    """Names and values as a table of two columns."""
    cells = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"
