"""The race as the page shows it: for now the texts, one pane a decoder."""

from __future__ import annotations

from typing import Any

import gradio as gr

_SKELETON = """<div class="dart-race-plain">
<p class="dart-note"></p>
<pre id="pane-dart"></pre><pre id="pane-eagle3"></pre><pre id="pane-baseline"></pre>
</div>"""

_SCRIPT = """
const panes = { dart: 0, eagle3: 0, baseline: 0 };
const note = element.querySelector(".dart-note");
let run = null, seen = 0;
function draw() {
  const value = props.value || {};
  if (value.run !== run || value.lines.length < seen) {
    run = value.run; seen = 0;
    for (const name in panes) element.querySelector("#pane-" + name).textContent = "";
  }
  note.textContent = value.note || "";
  element.dataset.state = value.state;
  const end = value.lines.lastIndexOf("\\n") + 1;
  for (const line of value.lines.slice(seen, end).split("\\n")) {
    if (!line) continue;
    const event = JSON.parse(line);
    const pane = element.querySelector("#pane-" + event.decoder);
    if (event.kind === "step") pane.textContent += event.tokens.map((token) => token[1]).join("");
    if (event.kind === "end") pane.dataset.reason = event.reason;
    if (event.kind === "end" && event.error) pane.textContent += "\\n" + event.error;
  }
  seen = Math.max(seen, end);
}
draw();
watch("value", draw);
"""


def race_view(value: dict[str, Any], *, elem_id: str = "race") -> gr.HTML:
    """The race; value as Visit.view gives it."""
    return gr.HTML(
        value,
        html_template=_SKELETON,
        js_on_load=_SCRIPT,
        apply_default_css=False,
        elem_id=elem_id,
    )
