"use strict";
// Scores over budgets, scores against costs, and paired differences.
{
  const {el} = report;
  const identity = {color: {type: "identity"}, symbol: {type: "identity"}};

  /** The cells of a task as rows for a figure. */
  const points = (table, task) => table.rows.filter((row) => !report.hidden(report.state()).has(row.method)).flatMap((row) => {
    const field = (name) => report.field(table, row.cell, task, name);
    if (field("score") === null) return [];
    return [{
      method: row.method, title: row.title, budget: row.budget, label: report.label(row), cell: row.cell,
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
    const present = table.tasks.filter((task) => table.rows.some((row) => table.cells[row.cell][task.name]));
    const absent = table.tasks.filter((task) => !present.includes(task)).map((task) => task.column);
    return [el("h2", {}, "Task by task"), el("div", {class: `multiples ${wide ? "wide" : ""}`}, present.map((task) => draw(task.name))),
      absent.length > 0 && el("p", {class: "hint"}, `No data: ${absent.join(", ")}.`)].filter(Boolean);
  };

  // Budget curves.

  const curve = (table, task, tall) => {
    const rows = points(table, task);
    const own = rows.filter((row) => row.budget !== null);
    const full = rows.filter((row) => row.budget === null);
    const budgets = [...new Set(own.map((row) => row.budget))].sort((a, b) => a - b);
    return report.figure({
      title: report.taskTitle(table, task), name: `budgets-${task}`, rows, columns: COLUMNS, first: tall,
      about: `Score by budget of ${new Set(own.map((row) => row.title)).size} methods; bands are 95% intervals.`,
      plot: () => ({
        ...identity, height: tall ? 380 : 220, marginLeft: 36, marginBottom: 34,
        x: {type: "log", base: 2, domain: budgets.length > 1 ? [budgets[0], budgets.at(-1)] : [budgets[0] / 2, budgets[0] * 2],
          ticks: budgets, tickFormat: String, label: "budget, tokens per head", inset: 8},
        y: {grid: true, nice: true, label: "score"},
        marks: [
          Plot.areaY(own, {x: "budget", y1: "low", y2: "high", z: "method", fill: "color", fillOpacity: 0.08}),
          Plot.ruleY(full, {y: "score", stroke: "var(--m0)", strokeDasharray: "5 3"}),
          Plot.text(full, {y: "score", text: "title", frameAnchor: "right", dy: -7, fill: "currentColor", stroke: "var(--panel)", strokeWidth: 4}),
          Plot.line(own, {x: "budget", y: "score", z: "method", stroke: "color", strokeWidth: 1.8}),
          Plot.ruleX(budgets.length > 1 ? [] : own, {x: "budget", y1: "low", y2: "high", stroke: "color"}),
          Plot.dot(own, {x: "budget", y: "score", symbol: "symbol", fill: "color", r: 4}),
          Plot.tip(own, Plot.pointer({x: "budget", y: "score", title: tip})),
        ],
      }),
    });
  };

  const budgets = (root, state) => {
    const table = report.table(state);
    root.append(el("h1", {}, "Score by budget"), el("p", {class: "caption"}, `${table.caption}. Bands: 95% bootstrap intervals.`),
      report.key(table, state), curve(table, "average", true),
      ...taskByTask(table, (task) => curve(table, task, false), false));
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

  const tradeoff = (table, task, cost, label) => {
    const rows = points(table, task).filter((row) => row[cost] !== null);
    const ahead = front(rows, cost);
    const shown = new Set(ahead);
    return report.figure({
      title: `Score against ${label}`, name: `${cost}-${task}`,
      rows: rows.map((row) => ({...row, front: shown.has(row) ? "yes" : "no"})),
      columns: [...COLUMNS, [cost, label], ["front", "On the front"]],
      about: `One mark a method and budget; the line joins those that no other beats. Bars are 95% intervals.`,
      plot: () => ({
        ...identity, height: 400, marginLeft: 36, marginBottom: 38, marginRight: 34,
        x: {type: "log", label: `${label} (log scale)`, grid: true, inset: 14, ticks: 5, tickFormat: cost === "bytes" ? report.bytes : (value) => `${value} s`},
        y: {grid: true, nice: true, label: "score"},
        marks: [
          Plot.line(ahead, {x: cost, y: "score", curve: "step-after", stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "2 3"}),
          Plot.ruleX(rows, {x: cost, y1: "low", y2: "high", stroke: "color", strokeOpacity: 0.45}),
          Plot.dot(rows, {x: cost, y: "score", symbol: "symbol", fill: "color", r: 4.5}),
          Plot.text(rows, {x: cost, y: "score", text: (row) => row.budget ?? "full", dx: 7, textAnchor: "start", fontSize: 9, fill: "currentColor", stroke: "var(--panel)"}),
          Plot.tip(rows, Plot.pointer({x: cost, y: "score",
            title: (row) => `${tip(row)}\n${report.bytes(row.bytes)}, ${report.seconds(row.seconds)} per answer`})),
        ],
      }),
    });
  };

  const costs = (root, state) => {
    const table = report.table(state);
    const task = state.task ?? "average";
    root.append(el("h1", {}, "Score against cost"),
      el("div", {class: "controls"}, report.choice("task", "Task", report.tasks(table), task, (value) => report.go({task: value}, true))),
      el("p", {class: "caption"}, `${table.caption}. Numbers beside the marks are budgets; bars are 95% intervals. `,
        "Seconds are prefill, selection and decoding of an answer. Each answer has the whole prefill's seconds, though methods ",
        "share one prefill; what a batch takes to decode is divided equally among its rows, so that all rows of a batch show the ",
        "same. The seconds are therefore no ranking of methods."),
      report.key(table, state),
      el("div", {class: "pair"}, tradeoff(table, task, "bytes", "stored bytes per answer"),
        tradeoff(table, task, "seconds", "seconds per answer, share of its batch")));
  };

  // Paired differences.

  const forest = (table, differences, task, method) => {
    const rows = table.rows.filter((row) => row.method !== method).flatMap((row) => {
      const other = report.opponent(table, row, method);
      const found = other && report.difference(differences, row.cell, other.cell, task);
      return found ? [{title: row.title, budget: row.budget, label: report.label(row), ...found, ...report.look(row.method)}] : [];
    });
    return report.figure({
      title: report.taskTitle(table, task), name: `differences-${method}-${task}`, rows, first: task === "average",
      columns: [["title", "Method"], ["budget", "Budget"], ["mean", "Difference"], ["error", "Standard error"],
        ["low", "95% low"], ["high", "95% high"], ["pairs", "Pairs"]],
      about: `Mean paired difference to ${method} on the same examples, with 95% intervals.`,
      plot: () => ({
        ...identity, height: 46 + 19 * rows.length, marginLeft: 130, marginTop: 6, marginBottom: 36,
        x: {label: `points more than ${report.methods(table).find(([name]) => name === method)?.[1]}`, grid: true, nice: true, tickFormat: (value) => report.signed(value, Number.isInteger(value) ? 0 : 1)},
        y: {label: null, domain: rows.map((row) => row.label), tickSize: 0},
        marks: [
          Plot.ruleX([0], {stroke: "currentColor"}),
          Plot.ruleY(rows.filter((row) => row.low !== null), {y: "label", x1: "low", x2: "high", stroke: "color", strokeWidth: 2}),
          Plot.dot(rows, {y: "label", x: "mean", symbol: "symbol", fill: "color", r: 4.5}),
          Plot.tip(rows, Plot.pointerY({y: "label", x: "mean", title: (row) => `${row.label}\n${report.withInterval(row, 2)}\n`
            + (row.pairs === 1 ? "n = 1, no interval" : `${row.pairs} pairs`)})),
        ],
      }),
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
        "intervals. One that leaves out 0 here may still be chance among so many: ", el("code", {}, "python -m eval.compare"), " corrects for it."));
    const place = el("div", {});
    root.append(place);
    const found = await report.load(`${table.id}/differences`);
    place.append(forest(table, found, "average", method), ...taskByTask(table, (task) => forest(table, found, task, method), true));
  };

  report.views.budgets = {title: "Budgets", menu: true, show: budgets};
  report.views.costs = {title: "Costs", menu: true, show: costs};
  report.views.differences = {title: "Differences", menu: true, show: differences};
}
