// The template of a figure, in the colours of a light or dark page.
function plotTheme(isDark) {
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
