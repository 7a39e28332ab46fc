// Draws the figures, in the colours of the page: light, dark, or (when printed) light.
(function () {
  "use strict";
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  window.addEventListener("error", function (event) {
    root.dataset.errors = (root.dataset.errors || "") + event.message + "\n";
  });

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [];

  // On paper a figure has the width that page.css gives its place there; on screen, its container's.
  function paint(isDark, onPaper) {
    for (const plot of plots) {
      const width = onPaper ? (plot.closest(".panels") ? 330 : 680) : null;
      Plotly.relayout(plot, { template: plotTheme(isDark), width: width, autosize: !onPaper });
    }
  }

  // Says of what is wider than the screen that it can be scrolled; a network is first shown from its middle.
  function showCues(part) {
    for (const wide of part.querySelectorAll(".wide, .scroll")) {
      if (wide.scrollWidth <= wide.clientWidth || wide.querySelector(".cue")) continue;
      const cue = document.createElement("p");
      cue.className = "cue";
      cue.textContent = "Swipe or scroll sideways: this is wider than the screen.";
      wide.prepend(cue);
      if (wide.querySelector(".network")) wide.scrollLeft = (wide.scrollWidth - wide.clientWidth) / 2;
    }
  }

  async function draw() {
    for (const [id, figure] of Object.entries(figures)) {
      const plot = document.getElementById(id);
      const layout = Object.assign({ template: plotTheme(dark.matches) }, figure.layout);
      await Plotly.newPlot(plot, figure.data, layout, {
        responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: id },
      });
      plots.push(plot);
    }
    root.dataset.drawn = String(plots.length);
    document.addEventListener("toggle", function (event) {  // while it is folded, nothing has a width
      for (const plot of event.target.querySelectorAll(".plot")) Plotly.Plots.resize(plot);
      showCues(event.target);
    }, true);
    showCues(document);
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
