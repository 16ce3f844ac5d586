"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const charts = [...document.querySelectorAll("[data-figure]")];
  const hidden = new Set();
  const chosen = document.getElementById("mean");
  const config = { displaylogo: false, displayModeBar: false };

  // Plotly cannot read CSS, so the colours of the page are handed to it, again whenever they change.
  function themed(layout) {
    const css = getComputedStyle(document.documentElement);
    const [text, muted, line, card] = ["--text", "--muted", "--line", "--card"].map((name) => css.getPropertyValue(name).trim());
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: muted };
    const axis = (own) => ({ gridcolor: line, linecolor: line, tickcolor: line, ...own, title: { ...own.title, font } });
    return {
      ...layout,
      font,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: card, bordercolor: line, font: { ...font, color: text }, namelength: -1 },
      xaxis: axis(layout.xaxis),
      yaxis: axis(layout.yaxis),
      shapes: (layout.shapes || []).map((shape) => ({ ...shape, layer: "below", line: { ...shape.line, color: muted } })),
      annotations: (layout.annotations || []).map((note) => ({ ...note, font: { size: 11, color: muted } })),
    };
  }

  // As rolling_mean in runs/measures.py: the mean of all values of the last rounds, the point's own among them.
  function averaged(trace) {
    const rounds = trace.customdata, over = chosen ? Number(chosen.value) : 1;
    if (over === 1 || trace.type !== "scatter" || !rounds) return {};
    let first = 0;
    const y = trace.y.map((_, place) => {
      while (rounds[first] <= rounds[place] - over) first++;
      const some = trace.y.slice(first, place + 1);
      return some.reduce((sum, value) => sum + value, 0) / some.length;
    });
    return { y };
  }

  function draw() {
    for (const chart of charts) {
      const { data, layout } = specs[chart.dataset.figure];
      const color = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
      const written = (trace) => (trace.mode === "text" ? { textfont: { color } } : {});
      const shown = data.map((trace) => ({ ...trace, ...averaged(trace), ...written(trace), visible: !hidden.has(trace.meta) }));
      Plotly.react(chart, shown, themed(layout), config);
    }
  }

  for (const button of document.querySelectorAll("[data-run]")) {
    button.addEventListener("click", () => {
      const run = Number(button.dataset.run);
      if (!hidden.delete(run)) hidden.add(run);
      button.setAttribute("aria-pressed", String(!hidden.has(run)));
      draw();
    });
  }
  if (chosen) chosen.addEventListener("change", draw);
  // Plotly follows the window only; a scroll bar that appears, or a printer, changes the width of a chart too.
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => Plotly.Plots.resize(entry.target)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  charts.forEach((chart) => resized.observe(chart));
})();
