"use strict";
// The tables as the paper lays them out: methods by budget down, tasks across.
{
  const {el} = report;
  const STEPS = [0.25, 1, 3, 8, 20]; // points of difference from which a stronger colour is used
  const MEASURES = {
    score: {title: "Score", value: (table, cell, task) => report.field(table, cell, task, "score"), best: true,
      text: (value) => report.number(value, 1)},
    difference: {title: "Difference", text: (value) => report.signed(value, 1)},
    bytes: {title: "Stored bytes", value: (table, cell, task) => report.field(table, cell, task, "bytes"),
      text: report.bytes},
    seconds: {title: "Seconds", value: report.time, text: report.seconds},
  };

  const strength = (difference) => {
    if (difference === null) return "";
    const step = STEPS.filter((least) => Math.abs(difference) >= least).length;
    return step ? `${difference > 0 ? "more" : "less"}-${step}` : "even";
  };

  const settings = (state) => ({
    show: MEASURES[state.show] ? state.show : "score",
    against: state.against ?? "full",
  });

  /** Difference of a cell to what it is compared with. */
  const compared = (table, differences, row, task, against) => {
    if (against === "paper") {
      const printed = report.field(table, row.cell, task, "paper");
      const own = report.field(table, row.cell, task, "score");
      return printed === null || own === null ? null : {mean: own - printed, low: null, high: null, printed};
    }
    const other = report.opponent(table, row, against);
    return other && other !== row ? report.difference(differences, row.cell, other.cell, task) : null;
  };

  /** Best and second best of each budget, FullKV apart, by what is printed. */
  const places = (table, tasks, measure) => {
    const marks = new Map();
    if (!measure.best) return marks;
    for (const budget of new Set(table.rows.map((row) => row.budget))) {
      if (budget === null) continue;
      const block = table.rows.filter((row) => row.budget === budget);
      for (const task of tasks) {
        const values = block.map((row) => measure.value(table, row.cell, task)).filter((value) => value !== null);
        const printed = [...new Set(values.map((value) => value.toFixed(1)))].sort((a, b) => b - a);
        if (values.length < 2) continue;
        for (const row of block) {
          const rank = printed.indexOf(measure.value(table, row.cell, task)?.toFixed(1));
          if (rank === 0 || rank === 1) marks.set(`${row.cell} ${task}`, rank ? "second" : "best");
        }
      }
    }
    return marks;
  };

  let page = null; // what is on the page: {table, differences, rows, grid}

  const show = async (root, state) => {
    const table = report.table(state);
    const own = page = {table};
    const place = el("div", {class: "table"});
    own.controls = el("div", {class: "controls"});
    root.append(
      el("h1", {}, table.name, el("small", {}, ` on ${table.data}, preset ${table.preset}`)),
      own.controls, el("p", {class: "caption"}, `${table.caption}.`), place, key(), el("p", {class: "hint"},
        "Bold and underlined: best and second best of a budget. Pointing at a cell shows its standard error (\u00b1). Arrow keys move from cell to cell; Enter keeps a cell's ",
        "details open; a method's name shows the settings that made its row. ",
        el("a", {href: table.csv, download: ""}, "All numbers as CSV")));
    if (table.notes.length) root.append(el("section", {class: "notes"}, el("h2", {}, "Notes"),
      el("ul", {}, table.notes.map((note) => el("li", {}, note)))));
    if (report.ready.problems.length) root.append(el("section", {class: "problem"}, el("h2", {}, "Not shown"),
      el("ul", {}, report.ready.problems.map((problem) => el("li", {}, problem)))));
    controls(own, state);
    own.place = place;
    own.differences = await report.load(`${table.id}/differences`);
    if (page === own) grid(own, report.state());
  };

  /** Other numbers and colours in the same cells. */
  const update = (state) => {
    const own = page;
    if (!own?.grid) return false;
    const focused = document.activeElement?.id;
    controls(own, state);
    fill(own, state);
    for (const row of own.grid.getRows()) for (const cell of row.getCells())
      if (cell.getValue()?.task) cell.getElement().replaceChildren(entry(own, cell.getValue()));
    own.place.querySelector(".entry")?.setAttribute("tabindex", "0");
    own.place.dataset.built = "yes";
    if (focused) document.getElementById(focused)?.focus({preventScroll: true});
    return true;
  };

  const controls = ({controls: place, table}, state) => {
    const {show: shown, against} = settings(state);
    place.replaceChildren(
      report.switch("show", "Show", Object.entries(MEASURES).map(([value, {title}]) => ({value, title})), shown,
        (value) => report.go({show: value}, true)),
      report.choice("against", "Colour: difference to", [
        ...(report.methods(table).some(([method]) => method === "full") ? [] : [{value: "full", title: "FullKV (not run)"}]),
        {value: "paper", title: "the paper"},
        ...report.methods(table).map(([value, title]) => ({value, title})),
      ], against, (value) => report.go({against: value}, true)));
  };

  const key = () => el("ul", {class: "key", "aria-label": "Colours"},
    [...STEPS.map((least, place) => [`less-${place + 1}`, `\u2212${least}`]).reverse(), ["even", "even"],
      ...STEPS.map((least, place) => [`more-${place + 1}`, `+${least}`]), ["missing", "missing"]].map(([name, title]) =>
      el("li", {}, el("span", {class: `swatch ${name}`}), title)));

  /** What each cell shows, in objects that stay the same: the grid sorts by them. */
  const fill = (own, state) => {
    const {table, differences} = own;
    const tasks = [...table.tasks.map((task) => task.name), "average"];
    const {show: shown, against} = settings(state);
    Object.assign(own, {measure: MEASURES[shown], against});
    const marks = places(table, tasks, own.measure);
    own.rows ??= table.rows.map((row) => ({id: row.cell, row, budget: row.budget ?? 0,
      ...Object.fromEntries(tasks.map((task) => [task, {row, task, present: table.cells[row.cell]?.[task] !== undefined}]))}));
    for (const line of own.rows) for (const task of tasks) {
      const difference = compared(table, differences, line.row, task, against);
      const value = own.measure.value ? own.measure.value(table, line.row.cell, task) : difference?.mean ?? null;
      Object.assign(line[task], {difference, value, mark: marks.get(`${line.row.cell} ${task}`)});
    }
  };

  const grid = (own, state) => {
    const {table, place} = own;
    fill(own, state);
    const column = (task, title) => ({
      field: task, title, formatter: (cell) => entry(own, cell.getValue()), headerHozAlign: "right", hozAlign: "right",
      sorter: (a, b) => (a.value ?? -Infinity) - (b.value ?? -Infinity), headerSortStartingDir: "desc", minWidth: 58,
      cssClass: task === "average" ? "average" : "",
    });
    const groups = Object.entries(Object.groupBy(table.tasks, (task) => task.group)).map(([title, some]) =>
      ({title, columns: some.map((task) => column(task.name, task.column))}));
    const made = report.grid(place, {
      layout: "fitDataTable", data: own.rows, reactiveData: false,
      columns: [
        {title: "Method", field: "row", frozen: true, headerSort: false, formatter: (cell) => name(table, cell.getValue())},
        {title: "B", field: "budget", hozAlign: "right", headerHozAlign: "right", width: 56,
          formatter: (cell) => document.createTextNode(cell.getValue() || "\u2013")},
        ...groups, column("average", table.average)],
      rowFormatter: (row) => {
        const before = row.getPrevRow();
        row.getElement().classList.toggle("block", Boolean(before) && before.getData().budget !== row.getData().budget);
      },
    });
    made.on("tableBuilt", () => {
      own.grid = made;
      place.querySelector(".entry")?.setAttribute("tabindex", "0");
      place.dataset.built = "yes";
    });
    place.addEventListener("keydown", (event) => move(place, event));
  };

  const name = (table, row) =>
    el("button", {type: "button", class: "name", title: "Settings", onclick: () => report.settings(table, row)}, row.title);

  const move = (place, event) => {
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const own = event.target.closest?.(".entry");
    if (!steps || !own) return;
    event.preventDefault();
    const rows = [...place.querySelectorAll(".tabulator-row")].map((row) => [...row.querySelectorAll(".entry")]);
    const y = rows.findIndex((row) => row.includes(own));
    const next = rows[y + steps[0]]?.[rows[y].indexOf(own) + steps[1]];
    if (!next) return;
    own.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };

  const entry = ({table, measure, against}, {row, task, difference, value, present, mark}) => {
    if (!present) return el("span", {class: "entry missing", tabindex: "-1", "aria-label": `${report.label(row)}, ${report.taskTitle(table, task)}: missing`}, "missing");
    const full = report.opponent(table, row, "full");
    const lower = measure.best || measure === MEASURES.difference ? null
      : full && full !== row && measure.value(table, full.cell, task)
        ? `${Math.round(100 * value / measure.value(table, full.cell, task))} %` : "";
    const second = lower ?? (measure.best ? report.signed(difference?.mean ?? null) : report.number(report.field(table, row.cell, task, "score")));
    const colour = lower === null ? strength(difference?.mean ?? null) : "";
    const made = el("button", {
      type: "button", class: `entry ${colour} ${mark ?? ""}`, tabindex: "-1",
      "aria-label": `${report.label(row)}, ${report.taskTitle(table, task)}: ${measure.text(value)}${second ? `, ${second}` : ""}${mark ? `, ${mark}` : ""}`,
    }, el("b", {}, measure.text(value)), el("i", {}, second));
    const open = (pinned) => report.tip(made, table, {row, task, difference, against}, pinned);
    made.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") open(false); });
    made.addEventListener("focus", () => open(false));
    made.addEventListener("pointerleave", () => report.closeTip());
    made.addEventListener("blur", () => report.closeTip());
    made.addEventListener("click", () => open(true));
    return made;
  };

  report.views.tables = {title: "Tables", menu: true, show, update};
}
