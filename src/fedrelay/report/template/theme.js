// Plotly cannot read CSS, so the colours of the page are handed to it, again whenever they change.
const FONT_SIZE = 12.5;
const PAPER = { text: "#000000", muted: "#000000", line: "#cccccc", card: "#ffffff", family: "Arial, Helvetica, sans-serif" };

function screenLook() {
  const css = getComputedStyle(document.documentElement);
  const [text, muted, line, card] = ["--text", "--muted", "--line", "--card"].map((name) => css.getPropertyValue(name).trim());
  return { text, muted, line, card, family: getComputedStyle(document.body).fontFamily };
}

function themed(layout, look, size = FONT_SIZE) {
  const font = { family: look.family, size, color: look.muted };
  const axis = (own) => ({ gridcolor: look.line, linecolor: look.line, tickcolor: look.line, ...own, title: { ...own.title, font } });
  return {
    ...layout,
    font,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: look.card, bordercolor: look.line, font: { ...font, color: look.text }, namelength: -1 },
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
    shapes: (layout.shapes || []).map((shape) => ({ ...shape, layer: "below", line: { ...shape.line, color: look.muted } })),
    annotations: (layout.annotations || []).map((note) => ({ ...note, font: { size: 0.88 * size, color: look.muted } })),
  };
}
