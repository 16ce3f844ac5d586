// The controls of each part of the page: what is chosen there is drawn there.
function follow(root, part) {
  const choice = { axis: "round", mean: part.smooth, seeds: part.groups.some(({ runs }) => runs.length > 1) ? "range" : "each", target: part.target };
  const axis = () => part.axes.find(({ key }) => key === choice.axis);
  for (const key of Object.keys(part.curves)) {
    const name = `${root.dataset.part}-${key}`;
    live[name] = (away) => ({ data: tracesOf(part, key, axis(), choice, away), layout: layoutOf(part, key, specs[name], axis(), choice) });
  }
  const captioned = root.querySelector(`[data-figure="${root.dataset.part}-rounds"]`)?.closest("figure").querySelector("figcaption");

  function tell() {
    const bands = { range: " Bands go from the smallest to the largest of the seeds.", deviation: " Bands are ± one standard deviation over seeds.", each: "" };
    if (captioned) captioned.textContent = axis().caption + bands[choice.seeds];
    fillTargets(root, part, choice, hidden[root.dataset.part] ?? new Set());
  }

  for (const control of root.querySelectorAll("[data-choice]")) {
    const what = control.dataset.choice;
    control.addEventListener(what === "target" ? "input" : "change", () => {
      if (what === "mean") choice.mean = Number(control.value);
      else if (what === "target") choice.target = control.value === "" ? null : Number(control.value) / (part.headline.share ? 100 : 1);
      else choice[what] = control.value;
      tell();
      drawIn(root);
    });
  }
  root.querySelector("form.controls")?.addEventListener("submit", (event) => event.preventDefault());
  root.querySelector("form.controls")?.reset();
  root.addEventListener("hidden", tell);
  tell();
  if (part.order.length) drawOrder(root.querySelector("section.order"), part.order);
}

for (const root of document.querySelectorAll("[data-part]")) follow(root, parts[Number(root.dataset.part)]);
