"""The style sheets of a report and of a plot: light and dark, safe for colour-blind readers."""

# Lines have the colours of Okabe and Ito (2008), which colour-blind readers can distinguish, and
# lighter ones on a dark page. No two lines have both the same dashes and a similar colour.
LINES = 10  # classes of lines; further ones begin again
STYLE = """\
:root {
  --page: #fff; --ink: #1b1f24; --faint: #57606a; --rule: #d8dee4; --tint: #f3f5f8;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b0578d;
  --c4: #b87a00; --c5: #2f8fc4; --c6: #1b1f24; --c7: #7a7a7a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e6e9ed; --faint: #a3abb5; --rule: #353b43; --tint: #1d2126;
    --c0: #4aa8e0; --c1: #ff8a3d; --c2: #22c496; --c3: #e39ac5;
    --c4: #f0b429; --c5: #8fd0f7; --c6: #e6e9ed; --c7: #a0a0a0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 16px 20px 48px; }
h1 { font-size: 1.5rem; margin: .4em 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .3em; }
p, figcaption, footer { color: var(--faint); max-width: 80ch; margin: .4em 0 1em;
  overflow-wrap: anywhere; }
figcaption, footer { font-size: .87rem; }
footer { margin-top: 3em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35em .5em; text-align: right; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; font-size: .85rem; vertical-align: bottom; }
tr > :first-child { text-align: left; font-weight: 600; }
td small { display: block; color: var(--faint); white-space: nowrap; }
figure { margin: 28px 0 0; min-width: 0; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 32px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  fill: var(--ink); }
.narrow { display: none; }
.grid { stroke: var(--rule); fill: none; }
.axis { stroke: var(--faint); fill: none; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.c0 { stroke: var(--c0); }
.c1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.c4 { stroke: var(--c4); }
.c5 { stroke: var(--c5); stroke-dasharray: 5 5; }
.c6 { stroke: var(--c6); stroke-dasharray: 1 2; }
.c7 { stroke: var(--c7); stroke-dasharray: 12 4; }
.c8 { stroke: var(--c0); stroke-dasharray: 3 6; }
.c9 { stroke: var(--c2); stroke-dasharray: 14 3 3 3; }
.g1 { fill: #56b4e9; } .g2 { fill: #009e73; } .g4 { fill: #e69f00; } .g8 { fill: #d55e00; }
.odd { fill-opacity: .62; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 6px;
  padding: 0; font-size: .87rem; }
.legend li { display: flex; align-items: center; gap: 6px; }
.legend svg { width: 26px; flex: none; }
@media (max-width: 820px) {
  main { padding: 8px 12px 32px; }
  .pair { grid-template-columns: minmax(0, 1fr); }
}
@media (max-width: 560px) {
  .wide { display: none; }
  .narrow { display: block; }
  thead { display: none; }
  tr { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); padding: 8px 0;
    border-bottom: 1px solid var(--rule); }
  tr > :first-child { grid-column: 1 / -1; }
  td { display: flex; justify-content: space-between; gap: 8px; border: 0; padding: .15em .5em; }
  td::before { content: attr(data-label); color: var(--faint); white-space: nowrap; }
  tbody:has(small) tr { grid-template-columns: minmax(0, 1fr); }
  td small { display: inline; margin-left: .6em; }
  td:first-child::before { content: none; }
}
@media print { body { font-size: 11px; } figure, tr { break-inside: avoid; } }
"""

# For a plot in a file of its own. Inside a page it follows the page's colour scheme if the browser
# passes it on, else it is light; so it has its own background.
PLOT_STYLE = """\
:root { color-scheme: light dark;
  --page: #fff; --ink: #1b1f24; --faint: #57606a; --first: #0072b2; --other: #aab4bf; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --ink: #e6e9ed; --faint: #a3abb5; --first: #4aa8e0; --other: #59636e; }
}
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  fill: var(--ink); stroke: var(--page); stroke-width: 3px; paint-order: stroke; }
.name text { font-weight: 600; }
.paper { fill: var(--page); }
.axis { stroke: var(--faint); fill: none; }
.one { stroke: var(--ink); stroke-dasharray: 2 3; fill: none; }
.first { fill: var(--first); }
.other { fill: var(--other); }
"""
