"use strict";
// The list of examples: which of them a method answers better than another.
{
  const {el} = report;
  const WHEN = {
    all: {title: "all", keep: () => true},
    better: {title: "A beats B", keep: (a, b) => a !== null && b !== null && a > b},
    worse: {title: "B beats A", keep: (a, b) => a !== null && b !== null && a < b},
    same: {title: "A and B score the same", keep: (a, b) => a !== null && a === b},
  };

  /** What the state asks for, with every part given. */
  report.asked = (table, state) => {
    const known = (cell) => table.rows.some((row) => row.cell === cell);
    const last = (method) => table.rows.filter((row) => row.method === method).at(0)?.cell;
    const a = known(state.a) ? state.a : last("echokv") ?? table.rows.at(-1).cell;
    const b = known(state.b) ? state.b : [last("laq"), last("full"), table.rows[0].cell].find((cell) => cell && cell !== a) ?? a;
    return {a, b, when: WHEN[state.when] ? state.when : "all", search: state.search ?? "", only: state.only ?? ""};
  };

  /** The examples that fit, in order. Searching needs the answers' texts, which are loaded task by task. */
  report.fitting = async (table, state) => {
    const {a, b, when, search, only} = report.asked(table, state);
    const scores = await report.load(`${table.id}/scores`);
    const wanted = search.toLowerCase();
    const names = table.tasks.map((task) => task.name).filter((name) => scores[name] && (!only || only === name));
    const found = [];
    for (const name of names) {
      const {ids, scores: grid} = scores[name];
      const texts = wanted ? await report.load(`${table.id}/${name}`) : null;
      ids.forEach((id, number) => {
        const left = grid[a]?.[number] ?? null;
        const right = grid[b]?.[number] ?? null;
        if (!WHEN[when].keep(left, right)) return;
        if (texts) {
          const said = [a, b].map((cell) => texts.answers[cell]?.[number]?.[0] ?? "");
          if (![id, ...texts.examples[number].answers, ...said].some((text) => text.toLowerCase().includes(wanted))) return;
        }
        found.push({task: name, number, id, left, right});
      });
    }
    return found;
  };

  const cells = (table) => table.rows.map((row) => ({value: row.cell, title: report.label(row)}));
  report.cells = cells;

  /** Narrowing controls, shared with nothing but kept in the address of a single example. */
  const controls = (table, state, found) => {
    const {a, b, when, search, only} = report.asked(table, state);
    const set = (name) => (value) => report.go({[name]: value}, true);
    const box = el("input", {id: "search", type: "search", value: search, placeholder: "id, answer, prediction",
      onchange: (event) => report.go({search: event.target.value}, true)});
    return el("div", {class: "controls"},
      report.choice("only", "Task", [{value: "", title: "all tasks"}, ...table.tasks.map((task) =>
        ({value: task.name, title: `${task.column} (${task.name})`, group: task.group}))], only, set("only")),
      report.choice("a", "A", cells(table), a, set("a")),
      report.choice("b", "B", cells(table), b, set("b")),
      report.choice("when", "Where", Object.entries(WHEN).map(([value, {title}]) => ({value, title})), when, set("when")),
      report.control("search", "Search", box),
      found);
  };

  const TALL = 54, AT_ONCE = 60; // pixels of a line; cards that are shown at once

  const link = ({task, number, id}) => el("a", {href: report.address({view: "example", task, n: number, id: null})}, id);

  /** What a cell answered, once the task's file is there: rows that nobody looks at load nothing. */
  const said = (table, {task, number}, cell) => {
    const place = el("span", {class: "said", dir: "auto"}, "\u2026");
    report.load(`${table.id}/${task}`).then(({answers}) => {
      const text = answers[cell]?.[number]?.[0];
      place.textContent = text === undefined ? "" : text.trim() || "(empty)";
    }, report.fail);
    return place;
  };

  const accepted = (table, {task, number}) => {
    const place = el("span", {class: "said", dir: "auto"}, "\u2026");
    report.load(`${table.id}/${task}`).then(({examples}) => { place.textContent = examples[number].answers.join(" / "); }, report.fail);
    return place;
  };

  const score = (value) => el("b", {class: "points"}, value === null ? "missing" : report.number(value));

  /** One line an example: what was asked for, and both answers with their scores. */
  const lines = (table, a, b) => [
    {title: "Example", field: "id", widthGrow: 2, minWidth: 110,
      formatter: (cell) => el("div", {class: "stack"}, link(cell.getData()), el("small", {}, cell.getData().title))},
    {title: "Accepted", field: "number", headerSort: false, widthGrow: 2, minWidth: 90, formatter: (cell) => accepted(table, cell.getData())},
    ...[["left", "A", a], ["right", "B", b]].map(([field, letter, cell]) => ({
      title: `${letter}: ${report.label(report.row(table, cell))}`, field, widthGrow: 4, minWidth: 120,
      formatter: (entry) => el("div", {class: "answer"}, score(entry.getValue()), said(table, entry.getData(), cell))})),
    {title: "A \u2212 B", field: "gap", hozAlign: "right", headerHozAlign: "right", width: 78,
      formatter: (entry) => document.createTextNode(report.signed(entry.getValue()))},
  ];

  /** The same on a narrow page: a card an example. */
  const cards = (place, table, rows, a, b) => {
    const card = (one) => el("li", {class: "card"},
      el("div", {class: "answer"}, link(one), el("small", {}, one.title), el("small", {class: "gap"}, one.gap === null ? "" : `A \u2212 B: ${report.signed(one.gap)}`)),
      el("div", {class: "answer"}, el("small", {}, "accepted"), accepted(table, one)),
      [["A", one.left, a], ["B", one.right, b]].map(([letter, value, cell]) =>
        el("div", {class: "answer"}, el("small", {}, letter), score(value), said(table, one, cell))));
    const list = el("ol", {class: "cards"});
    const more = el("button", {type: "button", onclick: () => add()}, "More");
    const add = () => {
      list.append(...rows.slice(list.children.length, list.children.length + AT_ONCE).map(card));
      more.hidden = list.children.length >= rows.length;
    };
    add();
    place.append(list, more);
  };

  const show = async (root, state) => {
    const table = report.table(state);
    const {a, b} = report.asked(table, state);
    const count = el("output", {class: "count"});
    const place = el("div", {class: "list"});
    root.append(el("h1", {}, "Examples"), controls(table, state, count), place);
    const found = await report.fitting(table, state);
    count.textContent = `${found.length} example${found.length === 1 ? "" : "s"}`;
    const kept = table.recorded;
    const rows = found.map((one) => ({...one, title: report.taskTitle(table, one.task),
      gap: one.left === null || one.right === null ? null : one.left - one.right}));
    if (report.narrow.matches) cards(place, table, rows, a, b);
    else report.grid(place, {data: rows, layout: "fitColumns", rowHeight: TALL, columns: lines(table, a, b),
      height: Math.min(760, 42 + TALL * Math.max(1, found.length))});
    const recorded = Object.values(kept).reduce((sum, value) => sum + value, 0);
    root.append(el("p", {class: "hint"}, recorded
      ? `${recorded} answers have the tokens that their caches kept.`
      : "No kept tokens are recorded: run the same command again with record.selections=true, then write the report again."));
  };

  report.views.examples = {title: "Examples", menu: true, show};
}
