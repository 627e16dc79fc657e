"use strict";
// The tables as the paper lays them out: methods by budget down, tasks across.
{
  const {el} = report;
  const MEASURES = {
    score: {title: "Score", value: (table, cell, task) => report.field(table, cell, task, "score"), best: true, coloured: true,
      text: (value) => report.number(value, 1),
      hint: "Small: the standard error. Bold and underlined: best and second best of each block. "},
    difference: {title: "Difference", coloured: true, text: (value) => report.signed(value, 1), hint: "Small: the standard error of the difference. "},
    bytes: {title: "Stored bytes", value: (table, cell, task) => report.field(table, cell, task, "bytes"), text: report.bytes,
      hint: "Small: the share of what FullKV stores. "},
    seconds: {title: "Seconds", value: report.time, text: report.seconds, hint: "Each answer measured alone. Small: the share of FullKV's seconds. "},
  };
  const measures = (table) => Object.entries(MEASURES).filter(([name]) => name !== "seconds" || report.alone(table));

  const TOPS = [0.1, 1, 10].flatMap((unit) => [1, 1.5, 2, 3, 4, 5, 6, 8].map((one) => one * unit)).concat(100);
  const SHARES = [0.05, 0.2, 0.4, 0.6, 0.8]; // of the scale's end, from which a stronger colour is used

  /** Differences from which a stronger colour is used: of a scale that fits the largest one. */
  const stepsTo = (largest) => {
    const top = TOPS.find((one) => one >= largest) ?? TOPS.at(-1);
    return largest > 0 ? SHARES.map((share) => Number((share * top).toPrecision(3))) : [];
  };

  const strength = (difference, steps) => {
    if (difference === null || !steps.length) return "";
    const step = steps.filter((least) => Math.abs(difference) >= least).length;
    return step ? `${difference > 0 ? "more" : "less"}-${step}` : "even";
  };

  const settings = (table, state) => ({
    show: measures(table).some(([name]) => name === state.show) ? state.show : "score",
    against: state.against ?? "full",
  });

  /** Difference of a cell to what it is compared with. */
  const compared = (table, differences, row, task, against) => {
    if (against === "paper") {
      const printed = report.field(table, row.cell, task, "paper");
      const own = report.field(table, row.cell, task, "score");
      return printed === null || own === null ? null : {mean: own - printed, error: report.field(table, row.cell, task, "standard_error"), low: null, high: null};
    }
    const other = report.opponent(table, row, against);
    return other && other !== row ? report.difference(differences, row.cell, other.cell, task) : null;
  };

  /** Best and second best of each block, FullKV apart, by what is printed. */
  const places = (table, tasks, measure) => {
    const marks = new Map();
    if (!measure.best) return marks;
    for (const block of Map.groupBy(table.rows.filter((row) => row.block), (row) => row.block).values()) {
      for (const task of tasks) {
        const values = block.map((row) => measure.value(table, row.cell, task)).filter((value) => value !== null);
        const printed = [...new Set(values.map((value) => value.toFixed(1)))].sort((a, b) => b - a);
        if (printed.length < 2) continue; // where all are equal none is best
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
    Object.assign(own, {controls: el("div", {class: "controls"}), key: el("ul", {class: "key", "aria-label": "Colours"}), hint: el("span")});
    const absent = report.absent(table);
    root.append(
      el("h1", {}, table.name, el("small", {}, ` on ${table.data}, preset ${table.preset}`)),
      own.controls, el("p", {class: "caption"}, `${table.caption}.`), place, own.key, el("p", {class: "hint"}, own.hint,
        "Arrow keys move from cell to cell; Enter keeps a cell's details open; a method's name shows the settings that made its row. ",
        absent.length > 0 && `No data: ${absent.join(", ")}. `,
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
    const {show: shown, against} = settings(table, state);
    place.replaceChildren(
      report.switch("show", "Show", measures(table).map(([value, {title}]) => ({value, title})), shown,
        (value) => report.go({show: value}, true)),
      MEASURES[shown].coloured ? report.choice("against", "Colour: difference to", [
        ...(report.methods(table).some(([method]) => method === "full") ? [] : [{value: "full", title: "FullKV (not run)"}]),
        {value: "paper", title: "the paper"},
        ...report.methods(table).map(([value, title]) => ({value, title})),
      ], against, (value) => report.go({against: value}, true)) : "");
  };

  /** The colours that are on the page, and nothing else. */
  const key = (own) => {
    const cells = own.rows.flatMap((line) => own.tasks.map((task) => line[task]));
    const shown = own.measure.coloured ? cells.flatMap(({difference}) => (difference ? [strength(difference.mean, own.steps)] : [])) : [];
    const range = (way, sign) => own.steps.map((least, place) => [`${way}-${place + 1}`, `${sign}${least}`])
      .slice(0, Math.max(0, ...shown.filter((name) => name.startsWith(way)).map((name) => Number(name.at(-1)))));
    const pairs = [...range("less", "\u2212").reverse(), ...(shown.includes("even") ? [["even", `under ${own.steps[0]}`]] : []), ...range("more", "+")];
    const missing = cells.some(({present}) => !present) ? [["missing", "missing"]] : [];
    own.key.replaceChildren(...(pairs.length ? [el("li", {class: "said"}, `Points to ${report.against(own.table, own.against)}, from`)] : []),
      ...[...pairs, ...missing].map(([name, title]) => el("li", {}, el("span", {class: `swatch ${name}`}), title)));
    own.hint.textContent = own.measure.hint;
  };

  /** What each cell shows, in objects that stay the same: the grid sorts by them. */
  const fill = (own, state) => {
    const {table, differences} = own;
    const tasks = [...report.present(table).map((task) => task.name), "average"];
    const {show: shown, against} = settings(table, state);
    Object.assign(own, {measure: MEASURES[shown], against, tasks});
    const marks = places(table, tasks, own.measure);
    own.rows ??= table.rows.map((row) => ({id: row.cell, row, budget: row.budget ?? 0, block: row.block,
      ...Object.fromEntries(tasks.map((task) => [task, {row, task, present: table.cells[row.cell]?.[task] !== undefined}]))}));
    for (const line of own.rows) for (const task of tasks) {
      const difference = compared(table, differences, line.row, task, against);
      const value = own.measure.value ? own.measure.value(table, line.row.cell, task) : difference?.mean ?? null;
      Object.assign(line[task], {difference, value, mark: marks.get(`${line.row.cell} ${task}`)});
    }
    own.steps = stepsTo(Math.max(0, ...own.rows.flatMap((line) => tasks.map((task) => Math.abs(line[task].difference?.mean ?? 0)))));
    key(own);
  };

  const METHOD = 112, LEAST = 58; // pixels of columns

  const grid = (own, state) => {
    const {table, place} = own;
    fill(own, state);
    const narrow = report.narrow.matches;
    // Where not all columns fit, as many whole ones as do.
    const room = place.clientWidth - METHOD - 2;
    const fitting = Math.min(own.tasks.length, Math.floor(room / LEAST));
    const width = narrow ? Math.floor(room / fitting) : undefined;
    const column = (task, title, least = LEAST) => ({
      field: task, title, formatter: (cell) => entry(own, cell.getValue()), headerHozAlign: "right", hozAlign: "right",
      sorter: (a, b) => (a.value ?? -Infinity) - (b.value ?? -Infinity), headerSortStartingDir: "desc", minWidth: least, width, headerWordWrap: true,
      cssClass: task === "average" ? "average" : "",
    });
    const average = column("average", table.average);
    const groups = Object.entries(Object.groupBy(report.present(table), (task) => task.group)).map(([title, some]) =>
      ({title, columns: some.map((task) => column(task.name, task.column, Math.max(LEAST, (9 * title.length + 16) / some.length)))}));
    const flat = groups.flatMap(({columns}) => columns);
    const method = {title: "Method", field: "row", frozen: true, headerSort: false, formatter: (cell) => name(table, cell.getValue())};
    const budget = {title: "B", field: "budget", hozAlign: "right", headerHozAlign: "right", width: 56,
      formatter: (cell) => document.createTextNode(cell.getValue() || "\u2013")};
    const made = report.grid(place, {
      layout: narrow ? "fitData" : "fitDataTable", data: own.rows, reactiveData: false,
      columns: narrow ? [{...method, width: METHOD + room - fitting * width}, average, ...flat] : [{...method, width: Math.min(1.5 * METHOD, 9 * Math.max(...table.rows.map((row) => row.title.length)) + 34)}, budget, ...groups, average],
      ...(narrow && {groupBy: "block", groupToggleElement: false, groupHeader: (value) =>
        el("span", {class: "budget"}, value ? `budget ${value}` : "without a budget")}),
      rowFormatter: (row) => {
        const before = row.getPrevRow();
        row.getElement().classList.toggle("block", !narrow && Boolean(before) && before.getData().block !== row.getData().block);
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

  const error = (value) => (value === null || value === undefined ? "" : `\u00b1${report.number(value, 1)}`);

  /** A cost as a share of what the full cache costs. */
  const share = (table, measure, row, task, value) => {
    const full = report.opponent(table, row, "full");
    const whole = full && full !== row && measure.value(table, full.cell, task);
    return whole ? `${Math.round((100 * value) / whole)} %` : "";
  };

  const entry = ({table, measure, against, steps}, {row, task, difference, value, present, mark}) => {
    if (!present) return el("span", {class: "entry missing", tabindex: "-1", "aria-label": `${report.label(row)}, ${report.taskTitle(table, task)}: missing`}, "missing");
    const second = measure.coloured
      ? error(measure.best ? report.field(table, row.cell, task, "standard_error") : difference?.error)
      : share(table, measure, row, task, value);
    const colour = measure.coloured ? strength(difference?.mean ?? null, steps) : "";
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
