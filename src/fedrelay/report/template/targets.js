// What every run took to reach the target that is chosen, with the smoothing that is chosen.
const NEAR = 1e-12; // sums in another order must not miss a target that is met exactly

function reached(part, run, choice) {
  const sign = part.headline.higher ? 1 : -1, slack = NEAR * Math.abs(choice.target);
  const first = pointsOf(run, "rounds", choice.mean).find(({ value }) => sign * (value - choice.target) >= -slack);
  if (!first) return null;
  const at = (key) => (run[key] ? run[key][first.place] : null);
  return { round: first.round, traffic: at("traffic"), hops: at("hops"), clock: at("clock") };
}

const COSTS = { round: ["rounds", count], traffic: ["traffic", size], hops: ["hops in sequence", count], clock: ["simulated time", duration] };

// A row for every run, or for every method over its seeds: then means, and how many of its seeds got there.
function targetRows(part, choice, away) {
  const groups = choice.seeds === "each" ? part.runs.map(({ name }, run) => ({ name, runs: [run] })) : part.groups;
  const keys = part.axes.map(({ key }) => key);
  return groups.map(({ name, runs }) => ({ name, runs: runs.filter((run) => !away.has(run)) })).filter(({ runs }) => runs.length).map(({ name, runs }) => {
    const found = runs.map((run) => reached(part, part.runs[run], choice)).filter(Boolean), all = found.length === runs.length;
    const costs = keys.map((key) => found.map((one) => one[key]).filter((value) => value !== null));
    const values = costs.map((each) => (each.length ? mean(each) : null));
    return {
      name, look: { ...part.runs[runs[0]], dash: groupDash(runs.map((run) => part.runs[run])) }, reached: found.length, of: runs.length, keys, values, racing: all && !part.runs[runs[0]].reference,
      texts: costs.map((each, place) => {
        const write = COSTS[keys[place]][1], apart = each.length > 1 ? deviation(each) : 0;
        return write(values[place]) + (apart ? ` ± ${write(apart)}` : "");
      }),
    };
  });
}

function cell(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  return made;
}

function swatch({ colour, dash }) {
  const dashes = { dash: "5 3", dot: "2 2", dashdot: "6 2 2 2" }[dash] ?? "";
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", "swatch");
  made.setAttribute("viewBox", "0 0 18 10");
  made.setAttribute("aria-hidden", "true");
  made.innerHTML = `<line x1="1" y1="5" x2="17" y2="5" stroke="${colour}" stroke-width="4" stroke-dasharray="${dashes}"/>`;
  return made;
}

function fillTargets(root, part, choice, away) {
  const table = root.querySelector("[data-table=target]");
  if (!table) return;
  const told = root.querySelector("[data-told=target]");
  if (choice.target === null) {
    told.textContent = "Write a number as the target.";
    return;
  }
  const rows = targetRows(part, choice, away), several = rows.some(({ of }) => of > 1);
  const racing = rows.filter((row) => row.racing), keys = rows[0]?.keys ?? [];
  const least = keys.map((_, place) => Math.min(...racing.map(({ values }) => values[place] ?? Infinity)));
  const level = part.headline.share ? `${plain(100 * choice.target)} %` : plain(choice.target);
  const way = choice.mean > 1 ? `the mean ${part.headline.name} of the last ${choice.mean} rounds` : `the ${part.headline.name}`;
  told.textContent = `Until ${way} is ${part.headline.higher ? "at least" : "at most"} ${level}; ${NONE} means not reached.` +
    (several ? " Over seeds: mean ± standard deviation of those that got there." : "");
  const head = document.createElement("tr");
  head.append(cell("th", "Run", { scope: "col" }), ...(several ? [cell("th", "seeds that got there", { scope: "col", class: "number" })] : []));
  head.append(...keys.map((key) => cell("th", COSTS[key][0], { scope: "col", class: "number" })));
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows.map((row) => {
    const made = document.createElement("tr"), name = cell("th", row.name, { scope: "row" });
    name.prepend(swatch(row.look));
    made.append(name, ...(several ? [cell("td", `${row.reached} of ${row.of}`, { class: "number" })] : []));
    made.append(...row.texts.map((text, place) => {
      const best = racing.length > 1 && row.racing && row.values[place] === least[place] && row.values[place] !== null;
      const td = cell("td", best ? "" : text, { class: "number" });
      if (best) td.append(cell("strong", text, { class: "best" }), cell("span", " (best)", { class: "hidden" }));
      return td;
    }));
    return made;
  }));
}
