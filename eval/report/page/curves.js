"use strict";
// Scores over budgets, scores against costs, and paired differences.
{
  const {el} = report;
  const {identity} = report;

  /** The cells of a task as rows for a figure. */
  const points = (table, task) => table.rows.filter((row) => !report.hidden(report.state()).has(row.method)).flatMap((row) => {
    const field = (name) => report.field(table, row.cell, task, name);
    if (field("score") === null) return [];
    return [{
      method: row.method, title: row.title, family: row.family, budget: row.budget, label: report.label(row), cell: row.cell,
      score: field("score"), error: field("standard_error"), low: field("low"), high: field("high"), n: field("n"),
      bytes: field("bytes"), seconds: report.time(table, row.cell, task), ...report.look(row.method),
    }];
  });

  const COLUMNS = [["title", "Method"], ["budget", "Budget"], ["score", "Score"], ["error", "Standard error"],
    ["low", "95% low"], ["high", "95% high"], ["n", "Examples"]];
  const tip = (row) => `${row.label}\n${report.withError(row.score, row.error)}\n`
    + `95%: ${report.interval(row.low, row.high, row.n)}\nn = ${row.n}`;

  /** One figure for each task that has data; the others are named. */
  const taskByTask = (table, draw, wide) => {
    const absent = report.absent(table);
    return [el("h2", {}, "Task by task"), el("div", {class: `multiples ${wide ? "wide" : ""}`}, report.present(table).map((task) => draw(task.name))),
      absent.length > 0 && el("p", {class: "hint"}, `No data: ${absent.join(", ")}.`)].filter(Boolean);
  };

  /** All figures of a table go from 0 to the highest end of an interval in it. */
  const scale = (table) => ({
    domain: [0, Math.max(1, ...table.rows.flatMap((row) => Object.keys(table.cells[row.cell]).flatMap((task) =>
      ["score", "high"].map((name) => report.field(table, row.cell, task, name) ?? 0))))],
    grid: true, nice: true, label: "score",
  });

  const LEFT = 36, RIGHT = 20;

  // Budget curves. Of many methods one family is in colour, the others lie behind it in grey.

  const FEW = 9, REFERENCES = "references", ALL = "all";

  /** The families to choose from; none where there are few methods. */
  const families = (table) => {
    const limited = table.rows.filter((row) => row.budget !== null);
    return new Set(limited.map((row) => row.method)).size > FEW ? [...new Set(limited.map((row) => row.family))].filter((family) => family !== REFERENCES) : [];
  };

  /** Whether a row is in colour. */
  const chosen = (family) => (row) => family === ALL || [family, REFERENCES].includes(row.family);

  /** The line behind others that the pointer is at stands out. */
  const follow = (svg) => svg.addEventListener("input", () => {
    for (const line of svg.querySelectorAll("[aria-label^='behind ']"))
      line.classList.toggle("pointed", line.getAttribute("aria-label") === `behind ${svg.value?.method}`);
  });

  const curve = (table, task, family, tall) => {
    const rows = points(table, task);
    const coloured = rows.filter(chosen(family));
    const full = coloured.filter((row) => row.budget === null);
    const behind = rows.filter((row) => row.budget !== null && !coloured.includes(row)).map((row) => ({...row, at: row.budget}));
    const budgets = [...new Set(rows.map((row) => row.budget))].filter((budget) => budget !== null).sort((a, b) => a - b);
    const domain = budgets.length > 1 ? [budgets[0], budgets.at(-1)] : [budgets[0] / 2, budgets[0] * 2];
    const closest = Math.min(...budgets.slice(1).map((budget, place) => Math.log(budget / budgets[place])), Math.log(domain[1] / domain[0]));
    const methods = new Set(coloured.map((row) => row.method)).size;
    return report.figure({
      title: report.taskTitle(table, task), name: `budgets-${task}`, rows, columns: COLUMNS, first: tall,
      about: `Score by budget of ${methods} methods${behind.length ? ", others in grey" : ""}; bars are 95% intervals.`,
      after: follow,
      plot: (width) => {
        const inset = Math.min(14 + 4 * methods, width / 7);
        const pixels = width - LEFT - RIGHT - 2 * inset;
        const room = Math.min(2 * inset - 12, (0.75 * pixels * closest) / Math.log(domain[1] / domain[0]));
        const own = report.dodge(coloured.filter((row) => row.budget !== null), "budget", domain, pixels, {most: tall ? 10 : 7, room});
        return {
          ...identity, height: tall ? 380 : 220, marginLeft: LEFT, marginRight: RIGHT, marginBottom: 34,
          x: {type: "log", base: 2, domain, ticks: budgets, tickFormat: String, label: "budget, tokens per head", inset},
          y: scale(table),
          marks: [
            [...Map.groupBy(behind, (row) => row.method)].map(([method, some]) =>
              Plot.line(some, {x: "at", y: "score", stroke: "var(--line)", marker: "dot", ariaLabel: () => `behind ${method}`})),
            Plot.rect(full, {y1: "low", y2: "high", fill: "color", fillOpacity: 0.08}),
            full.map((row) => Plot.ruleY([row], {y: "score", stroke: "color", strokeWidth: 1.4, strokeDasharray: row.dash})),
            Plot.ruleX(own, {x: "at", y1: "low", y2: "high", stroke: "color", strokeOpacity: 0.5}),
            report.lines(own, {x: "at", y: "score"}),
            report.dots(own, {x: "at", y: "score", r: tall ? 4 : 3.2}),
            Plot.tip([...own, ...behind], Plot.pointer({x: "at", y: "score", title: tip})),
          ],
        };
      },
    });
  };

  const budgets = (root, state) => {
    const table = report.table(state);
    const known = families(table);
    const family = known.includes(state.family) ? state.family : known.length && state.family !== ALL ? known[0] : ALL;
    const methods = new Set(table.rows.filter(chosen(family)).map((row) => row.method));
    root.append(el("h1", {}, "Score by budget"),
      known.length ? el("div", {class: "controls"}, report.choice("family", "In colour",
        [...known.map((title) => ({value: title, title})), {value: ALL, title: "all methods"}], family, (value) => report.go({family: value}, true))) : "",
      el("p", {class: "caption"}, `${table.caption}. Bars, and the band of a method without a budget: 95% bootstrap intervals. `
        + `At each budget the marks stand side by side.${family === ALL ? "" : " Grey: all other methods; point at a line for its name."}`),
      report.key(table, state, true, ([method]) => methods.has(method)), curve(table, "average", family, true),
      ...taskByTask(table, (task) => curve(table, task, family, false), false));
  };

  // Score against cost.

  /** Cells that no other beats in score at the same cost or less. */
  const front = (rows, cost) => {
    let best = -Infinity;
    return [...rows].sort((a, b) => a[cost] - b[cost] || b.score - a.score).filter((row) => {
      const better = row.score > best;
      best = Math.max(best, row.score);
      return better;
    });
  };

  /** Rows of a dot plot from the cheapest to the dearest, at equal cost the best first, with a gap where the cost changes. */
  const byCost = (rows, cost) => {
    const ahead = new Set(front(rows, cost).map((row) => row.cell));
    const order = (row) => Number(row[cost].toPrecision(2));
    let at = 0, last = null;
    return [...rows].sort((a, b) => order(a) - order(b) || b.score - a.score).map((row) => {
      at += last === null ? 0 : order(row) === last ? 1 : 1.6;
      last = order(row);
      return {...row, at, front: ahead.has(row.cell)};
    });
  };

  const tradeoff = (table, task, cost, label) => {
    const rows = byCost(points(table, task).filter((row) => row[cost] !== null), cost);
    const said = cost === "bytes" ? report.bytes : report.seconds;
    const longest = Math.max(0, ...rows.map((row) => row.label.length));
    const room = 16 + 6.5 * Math.max(4, ...rows.map((row) => said(row[cost]).length));
    return report.figure({
      title: `Score against ${label}`, name: `${cost}-${task}`, first: cost === "bytes",
      rows: rows.map((row) => ({...row, front: row.front ? "yes" : "no"})),
      columns: [...COLUMNS, [cost, label], ["front", "On the front"]],
      about: `One line a method and budget, by ${label}; names in bold are those that no other beats at their cost or less. Bars are 95% intervals.`,
      plot: (width) => {
        const left = Math.min(14 + 6.6 * longest, 0.42 * width);
        const names = (some, fontWeight) => Plot.text(some, {y: "at", text: "label", frameAnchor: "left", textAnchor: "start", dx: 4 - left, fontWeight,
          lineWidth: (left - 12) / 11.5, textOverflow: "ellipsis-middle"});
        return {
          ...identity, height: 56 + 16 * (rows.at(-1)?.at ?? 0), marginLeft: left, marginRight: room, marginTop: 12, marginBottom: 36,
          x: {...scale(table), ticks: width < 400 ? 4 : 8},
          y: {axis: null, domain: [(rows.at(-1)?.at ?? 0) + 0.6, -0.6]},
          marks: [
            Plot.ruleX([0], {stroke: "currentColor", strokeOpacity: 0.5}),
            names(rows.filter((row) => row.front), 700), names(rows.filter((row) => !row.front), 400),
            Plot.text(rows, {y: "at", text: (row) => said(row[cost]), frameAnchor: "right", textAnchor: "end", dx: room - 4, fontVariant: "tabular-nums"}),
            Plot.ruleY(rows.filter((row) => row.low !== null), {y: "at", x1: "low", x2: "high", stroke: "color", strokeWidth: 1.6, strokeOpacity: 0.6}),
            report.dots(rows, {x: "score", y: "at"}),
            Plot.tip(rows, Plot.pointerY({x: "score", y: "at", title: (row) => `${tip(row)}\n${said(row[cost])} per answer`})),
          ],
        };
      },
    });
  };

  const costs = (root, state) => {
    const table = report.table(state);
    const task = state.task ?? "average";
    const alone = report.alone(table);
    root.append(el("h1", {}, "Score against cost"),
      el("div", {class: "controls"}, report.choice("task", "Task", report.tasks(table), task, (value) => report.go({task: value}, true))),
      el("p", {class: "caption"}, `${table.caption}. From the cheapest down, at equal cost the best first; bars are 95% intervals. In bold: what nothing beats at its cost or less. `,
        alone ? "Seconds are prefill, selection and decoding of an answer, each measured alone."
          : "Seconds are not shown: these answers were decoded in batches, whose time belongs to no row alone. Runs with cost=true measure each by itself."),
      report.key(table, state),
      el("div", {class: alone ? "pair" : "lone"}, tradeoff(table, task, "bytes", "stored bytes per answer"),
        alone && tradeoff(table, task, "seconds", "seconds per answer")));
  };

  // Paired differences.

  /** What a figure of differences shows: its rows in order. */
  const gaps = (table, differences, task, method) => table.rows.filter((row) => row.method !== method).flatMap((row) => {
    const other = report.opponent(table, row, method);
    const found = other && report.difference(differences, row.cell, other.cell, task);
    return found ? [{title: row.title, budget: row.budget, label: report.label(row), ...found, ...report.look(row.method)}] : [];
  });

  const forest = (table, differences, task, method, domain) => {
    const rows = gaps(table, differences, task, method);
    const longest = Math.max(0, ...rows.map((row) => row.label.length));
    return report.figure({
      title: report.taskTitle(table, task), name: `differences-${method}-${task}`, rows, first: task === "average",
      columns: [["title", "Method"], ["budget", "Budget"], ["mean", "Difference"], ["error", "Standard error"],
        ["low", "95% low"], ["high", "95% high"], ["pairs", "Pairs"]],
      about: `Mean paired difference to ${method} on the same examples, with 95% intervals.`,
      plot: (width) => {
        const left = Math.min(16 + 6.9 * longest, width / 2);
        return {
          ...identity, height: 46 + 19 * rows.length, marginLeft: left, marginTop: 6, marginBottom: 36,
          x: {domain, inset: 8, label: `points more than ${report.methods(table).find(([name]) => name === method)?.[1]}`, grid: true, nice: true, ticks: width < 400 ? 4 : 6, tickFormat: (value) => report.signed(value, Number.isInteger(value) ? 0 : 1) || "0"},
          y: {axis: null, domain: rows.map((row) => row.label)},
          marks: [
            Plot.axisY({label: null, tickSize: 0, lineWidth: (left - 12) / 11.5, textOverflow: "ellipsis-middle"}),
            Plot.ruleX([0], {stroke: "currentColor"}),
            Plot.ruleY(rows.filter((row) => row.low !== null), {y: "label", x1: "low", x2: "high", stroke: "color", strokeWidth: 2}),
            report.dots(rows, {y: "label", x: "mean", r: 4.5}),
            Plot.tip(rows, Plot.pointerY({y: "label", x: "mean", title: (row) => `${row.label}\n${report.withInterval(row, 2)}\n`
              + (row.pairs === 1 ? "n = 1, no interval" : `${row.pairs} pairs`)})),
          ],
        };
      },
    });
  };

  const differences = async (root, state) => {
    const table = report.table(state);
    const methods = report.methods(table);
    const method = state.method ?? (methods.find(([name]) => name === "laq") ?? methods.find(([name]) => name === "full") ?? methods[0])[0];
    root.append(el("h1", {}, "Paired differences"),
      el("div", {class: "controls"}, report.choice("method", "Against", methods.map(([value, title]) => ({value, title})), method,
        (value) => report.go({method: value}, true))),
      el("p", {class: "caption"}, `${table.caption}. Differences on the same examples, at the same budget; bars are 95% bootstrap `,
        "intervals. One that leaves out 0 here may still be chance among so many: ", el("code", {}, report.ready.commands.compare), " corrects for it."));
    const place = el("div", {});
    root.append(place);
    const found = await report.load(`${table.id}/differences`);
    const every = ["average", ...report.present(table).map((task) => task.name)].flatMap((task) => gaps(table, found, task, method));
    const [low, high] = d3.extent(every.flatMap((row) => [0, row.mean, row.low ?? 0, row.high ?? 0]));
    const domain = high > low ? [low, high] : [-1, 1];
    place.append(forest(table, found, "average", method, domain), ...taskByTask(table, (task) => forest(table, found, task, method, domain), true));
  };

  report.views.budgets = {title: "Budgets", menu: true, show: budgets};
  report.views.costs = {title: "Costs", menu: true, show: costs};
  report.views.differences = {title: "Differences", menu: true, show: differences};
}
