// The tree drawn by Plotly, in place. The script is served by the app itself, from the installed
// package; it is fetched when the page has come up, so that a replay needs no server.
import { figure } from "./tree_figure.js";

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", scrollZoom: false };

// url of plotly.min.js -> the library; rejects where it is not there
export function loadPlotly(url) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    // Gradio's own plots bring another version under the same name: keep the one that came now.
    script.addEventListener("load", () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no Plotly"))));
    script.addEventListener("error", () => reject(new Error("not found")));
    document.head.append(script);
  });
}

export class TreePlot {
  constructor(node, plotly, onPick) {
    this.node = node;
    this.plotly = plotly;
    this.onPick = onPick;
    this.listening = false;
  }

  show(step, layout, look) {
    const { data, layout: plan } = figure(step, layout, look);
    this.plotly.react(this.node, data, plan, CONFIG);
    if (this.listening) {
      const { width, height } = this.node._fullLayout;
      if (width !== look.width || height !== look.height) this.plotly.Plots.resize(this.node);
      return;
    }
    this.listening = true;
    this.node.on("plotly_click", (event) => this.onPick(event.points[0].customdata));
  }

  clear() {
    if (this.listening) this.plotly.purge(this.node);
    this.listening = false;
    this.node.replaceChildren();
  }
}
