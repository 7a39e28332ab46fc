// Draws the figures, in the colours of the page: light, dark, or (when printed) light.
(function () {
  "use strict";
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  window.addEventListener("error", function (event) {
    root.dataset.errors = (root.dataset.errors || "") + event.message + "\n";
  });

  function theme(isDark) {
    const ink = isDark ? "#e6e8eb" : "#1d2126";
    const soft = isDark ? "#a0a8b3" : "#5b6470";
    const grid = isDark ? "#2b3138" : "#e6e8eb";
    const paper = isDark ? "#1c2026" : "#ffffff";
    const axis = {
      gridcolor: grid, linecolor: soft, zerolinecolor: grid, tickcolor: soft, color: ink, ticks: "outside",
      ticklen: 4, showline: true, zeroline: false, title: { standoff: 8 },
    };
    return {
      layout: {
        font: { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", xaxis: axis, yaxis: axis,
        annotationdefaults: { font: { color: ink } },
        hoverlabel: { align: "left", bgcolor: paper, bordercolor: soft, font: { color: ink, size: 13 } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      },
    };
  }

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [];

  // On paper a figure has the width that page.css gives its place there; on screen, its container's.
  function paint(isDark, onPaper) {
    for (const plot of plots) {
      const width = onPaper ? (plot.closest(".panels") ? 330 : 680) : null;
      Plotly.relayout(plot, { template: theme(isDark), width: width, autosize: !onPaper });
    }
  }

  async function draw() {
    for (const [id, figure] of Object.entries(figures)) {
      const plot = document.getElementById(id);
      const layout = Object.assign({ template: theme(dark.matches) }, figure.layout);
      await Plotly.newPlot(plot, figure.data, layout, {
        responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: id },
      });
      plots.push(plot);
    }
    root.dataset.drawn = String(plots.length);
    dark.addEventListener("change", function () { paint(dark.matches, false); });
    window.addEventListener("beforeprint", function () {
      for (const folded of document.querySelectorAll("details")) folded.open = !folded.closest(".panels");
      paint(false, true);
    });
    window.addEventListener("afterprint", function () { paint(dark.matches, false); });
  }

  draw().catch(function (error) {
    root.dataset.errors = (root.dataset.errors || "") + error.message + "\n";
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.textContent = "Some figures could not be drawn; the tables below them hold the same numbers.";
    document.querySelector("main").prepend(notice);
  });
})();
