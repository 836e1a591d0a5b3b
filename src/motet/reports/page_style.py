"""The style sheet of the report: light and dark, narrow and wide, screen and paper."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59616b; --line: #d9dde2; --page: #ffffff; --box: #f5f7f9;
  --blue: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #a2abb5; --line: #363c44; --page: #14171b; --box: #1d2126;
    --blue: #52a8e0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
header .kicker { color: var(--soft); margin: 0; }
h1 { font-size: 1.3rem; line-height: 1.4; margin: .25rem 0 1rem; font-weight: 620; text-wrap: pretty; }
h2 { font-size: 1.15rem; margin: 2.75rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .25rem; }
p { margin: .5rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.tile { background: var(--box); border-radius: .5rem; padding: .8rem 1rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 650; line-height: 1.4; white-space: nowrap; }
.tile .name { font-weight: 600; }
.soft, figcaption, .notes, .tile small { color: var(--soft); font-size: .9rem; }
.notes { padding-left: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { overflow-wrap: break-word; text-align: left; padding: .4rem .8rem .4rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--soft); vertical-align: bottom; }
td.short { white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; overflow-wrap: normal; }
figure { margin: .75rem 0 1.5rem; }
figure svg { width: 100%; height: auto; display: block; }
pre { background: var(--box); border-radius: .5rem; padding: .75rem 1rem; margin: .5rem 0; white-space: pre-wrap;
  font: .86rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
summary { cursor: pointer; color: var(--soft); margin: .5rem 0; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --page: #fff; --box: #fff; --blue: #0072b2; }
  main { max-width: none; padding: 0; } figure, tr, .tile { break-inside: avoid; }
  .tile { border: 1px solid var(--line); }
  h2, h3 { break-after: avoid; }
}
"""
