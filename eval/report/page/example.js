"use strict";
// One example: its answers, and its prompt with the tokens that caches kept.
{
  const {el} = report;
  const LOOKS = [{value: "one", title: "A"}, {value: "other", title: "B"}, {value: "two", title: "side by side", wide: true}, {value: "difference", title: "A \u2212 B"}];
  const looks = () => LOOKS.filter(({wide}) => !(wide && report.narrow.matches)); // a narrow page has room for one pane
  let page = null; // what is on the page: {table, task, n, about, read, panes, ...}

  const asked = (table, state) => ({
    ...report.asked(table, state), task: state.task, n: Number(state.n ?? 0),
    look: looks().some(({value}) => value === state.look) ? state.look : "one",
    layer: state.layer ? Number(state.layer) : null, head: state.head ? Number(state.head) : null,
    token: state.token ? Number(state.token) : null, find: state.find ?? "", at: Number(state.at ?? 0),
    sa: state.sa ?? "final", sb: state.sb ?? "final",
  });

  const show = async (root, state) => {
    const table = report.table(state);
    const {task, n} = asked(table, state);
    root.append(el("p", {class: "wait"}, "Loading\u2026"));
    page?.panes?.forEach((pane) => pane.close());
    page = {table, task, n, root, panes: [], steps: new Map(), turn: 0};
    const own = page;
    let data;
    try {
      data = await report.load(`${table.id}/${task}`);
    } catch {
      data = null;
    }
    if (page !== own) return;
    const about = data?.examples[n];
    if (!about) {
      root.replaceChildren(el("p", {class: "problem", role: "alert"}, `There is no example ${n} of ${task} in this table.`));
      return;
    }
    const names = ["find", "status", "controls", "answers", "map", "legend", "panes", "token"];
    Object.assign(own, {data, about, places: Object.fromEntries(names.map((name) => [name, el("div", {class: name})]))});
    const {places} = own;
    places.status.setAttribute("role", "status");
    root.replaceChildren(
      el("div", {class: "heading"}, el("h1", {}, report.taskTitle(table, task), el("small", {}, ` ${about.id}`)), el("div", {class: "steps"})),
      places.controls,
      el("div", {class: "split"},
        el("section", {class: "aside", "aria-label": "Answers"}, places.answers, places.token),
        el("section", {class: "reading", "aria-label": "Prompt"}, places.find, places.map, places.legend, places.panes, places.status)));
    neighbours(own, state);
    const digest = Object.values(data.prompts).map((row) => row[n]).find(Boolean);
    if (digest) own.read = report.read(await report.load(`${table.id}/prompts/${digest}`), about.answers);
    if (page === own) await update(report.state());
  };

  /** Links to the examples before and after, among those that the list shows. */
  const neighbours = async (own, state) => {
    const found = await report.fitting(own.table, state);
    if (page !== own) return;
    const place = found.findIndex((one) => one.task === own.task && one.number === own.n);
    const link = (one, id, title, name) => el("a", {
      id, class: "button", "aria-label": name, "aria-disabled": one ? null : "true", title: name,
      href: one ? report.address({task: one.task, n: one.number, token: null, find: null, at: null}) : null}, title);
    own.root.querySelector(".steps").replaceChildren(
      el("a", {class: "button", href: report.address({view: "examples", task: null, n: null, look: null, layer: null, head: null, token: null, find: null, at: null, sa: null, sb: null})}, "List"),
      link(found[place - 1], "previous", "\u2190", "Previous example (p)"),
      el("span", {}, place < 0 ? `\u2013 of ${found.length}` : `${place + 1} of ${found.length}`),
      link(place < 0 ? found[0] : found[place + 1], "next", "\u2192", "Next example (n)"),
      el("button", {type: "button", onclick: help, "aria-label": "Keys", title: "Keys (?)"}, "?"));
  };

  /** Everything that may change without another prompt; the scrolling stays where it is. */
  const update = (state) => {
    if (!page?.about) return false;
    const own = page;
    const turn = ++own.turn;
    const want = asked(own.table, state);
    (async () => {
      const sides = {one: ["a"], other: ["b"]}[want.look] ?? ["a", "b"];
      const shown = await Promise.all(sides.map(async (side) => {
        const known = await stepsOf(own, want[side]);
        const name = known?.names.find((one) => one === want[`s${side}`]) ?? known?.names.at(-1);
        return {side, cell: want[side], known, step: known ? await known.get(name) : null, row: report.row(own.table, want[side])};
      }));
      if (page !== own || own.turn !== turn) return;
      const begun = performance.now();
      const focused = document.activeElement?.id;
      controls(own, want, shown);
      answers(own, want);
      if (own.read) report.reading(own, want, shown);
      else own.places.panes.replaceChildren(el("p", {class: "hint"}, "The tokens that were kept are not recorded for this example. Run the same command again with ",
        el("code", {}, "record.selections=true"), ", then write the report again."));
      if (focused) document.getElementById(focused)?.focus({preventScroll: true});
      own.root.dataset.turn = turn;
      performance.measure("example", {start: begun});
    })().catch(report.fail);
    return true;
  };

  const stepsOf = async (own, cell) => {
    if (!own.data.prompts[cell]?.[own.n]) return null;
    if (!own.steps.has(cell)) own.steps.set(cell, report.load(`${own.table.id}/${own.task}/${own.n}/${cell}`).then(report.steps));
    return own.steps.get(cell);
  };

  const change = (name) => (value) => report.go({[name]: value}, true);

  const controls = (own, want, shown) => {
    const step = (side) => shown.find((one) => one.side === side.slice(1));
    const stepSwitch = (name, title) => {
      const known = step(name)?.known;
      return known?.names.length > 1 && report.switch(name, title,
        known.names.map((value) => ({value, title: value === "final" ? "final cache" : value})), step(name).step.name, change(name));
    };
    const layers = shown[0].step?.layers ?? 0, heads = Math.max(0, ...shown.map((one) => one.step?.heads ?? 0));
    const numbers = (count, all) => [{value: "", title: all}, ...d3.range(count).map((value) => ({value: String(value), title: String(value)}))];
    own.places.controls.replaceChildren(...[
      report.choice("a", "A", report.cells(own.table), want.a, change("a")),
      report.choice("b", "B", report.cells(own.table), want.b, change("b")),
      report.switch("look", "Show", looks(), want.look, change("look")),
      stepSwitch("sa", "Step of A"), stepSwitch("sb", "Step of B"),
      layers > 0 && report.choice("layer", "Layer", numbers(layers, "all"), want.layer === null ? "" : String(want.layer), change("layer")),
      layers > 0 && report.choice("head", "Head", numbers(heads, "all"), want.head === null ? "" : String(want.head), change("head")),
    ].filter(Boolean));
  };

  // Answers.

  const answers = (own, want) => {
    const {data, about, n, table, places} = own;
    if (places.answers.dataset.of === `${want.a} ${want.b}`) return;
    places.answers.dataset.of = `${want.a} ${want.b}`;
    const opened = places.answers.querySelector("details")?.open;
    const field = (answer, name) => answer?.[data.fields.indexOf(name)];
    const card = (cell, side) => {
      const answer = data.answers[cell]?.[n];
      const score = field(answer, "score");
      return el("div", {class: `card ${side}`},
        el("h3", {}, el("span", {class: "side"}, side.toUpperCase()), report.label(report.row(table, cell)),
          el("span", {class: "score"}, answer ? report.number(score) : "missing")),
        el("p", {class: "pred", dir: "auto"}, answer ? field(answer, "pred").trim() || "(empty)" : "No answer is stored."),
        answer && el("p", {class: "cost"}, `${field(answer, "new_tokens")} tokens, ${report.bytes(field(answer, "bytes"))} stored`
          + (field(answer, "alone") ? `, ${report.seconds(["prefill_seconds", "selection_seconds", "decode_seconds"].reduce((sum, name) => sum + field(answer, name), 0))}` : "")));
    };
    places.answers.replaceChildren(
      el("div", {class: "card reference"}, el("h3", {}, about.answers.length > 1 ? "Accepted answers" : "Accepted answer"),
        about.answers.length > 1 ? el("ul", {}, about.answers.map((answer) => el("li", {dir: "auto"}, answer)))
          : el("p", {class: "pred", dir: "auto"}, about.answers[0] ?? ""),
        el("p", {class: "cost"}, `prompt: ${report.number(about.tokens, 0)} tokens${about.truncated ? ", cut in the middle" : ""}`)),
      card(want.a, "a"), want.b !== want.a && card(want.b, "b"),
      el("details", {class: "others", open: opened}, el("summary", {}, `All ${table.rows.length} answers`),
        el("ul", {}, table.rows.map((row) => {
          const answer = data.answers[row.cell]?.[n];
          return el("li", {}, el("a", {href: report.address({a: row.cell})}, report.label(row)),
            el("span", {class: "score"}, answer ? report.number(field(answer, "score")) : "missing"),
            el("p", {class: "pred", dir: "auto"}, answer ? field(answer, "pred").trim() || "(empty)" : ""));
        }))));
  };

  // Keys.

  const KEYS = [["n / p", "next / previous example"], ["1 2 3 4", "A, B, side by side, difference"], ["[ ]", "step of A back / on"],
    ["l / L", "layer on / back"], ["h / H", "head on / back"], ["e", "next evidence"], ["a", "next place of an answer"], ["s", "swap A and B"],
    ["\u2190 \u2192", "token back / on, in the text"], ["/", "find in the prompt"], ["?", "this list"]];

  const help = () => {
    const box = el("dialog", {class: "settings keys", "aria-label": "Keys"},
      el("form", {method: "dialog"}, el("button", {class: "close", "aria-label": "Close"}, "\u00d7")), el("h2", {}, "Keys"),
      el("dl", {}, KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])));
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  };

  /** The value after the shown one of a control, around the end. */
  const turn = (id, step) => {
    const box = document.getElementById(id);
    if (!box) return;
    const values = [...box.options].map((option) => option.value);
    change(id)(values[(values.indexOf(box.value) + step + values.length) % values.length]);
  };

  const nextStep = (step) => {
    const known = [...document.querySelectorAll("input[name=sa]")];
    const next = known[known.findIndex((one) => one.checked) + step];
    if (next) change("sa")(next.value);
  };

  const ACTIONS = {
    n: () => document.getElementById("next")?.click(), p: () => document.getElementById("previous")?.click(),
    ...Object.fromEntries(LOOKS.map(({value}, place) => [place + 1, () => change("look")(value)])),
    "[": () => nextStep(-1), "]": () => nextStep(1), l: () => turn("layer", 1), L: () => turn("layer", -1), h: () => turn("head", 1), H: () => turn("head", -1),
    e: () => page.read && report.nextOf(page, page.read.evidence), a: () => page.read && report.nextOf(page, page.read.answers),
    s: () => { const {a, b} = report.asked(page.table, report.state()); report.go({a: b, b: a, sa: null, sb: null}, true); },
    "/": () => document.getElementById("find")?.focus(), "?": help,
  };

  addEventListener("keydown", (event) => {
    const busy = event.target.closest?.("input:not([type=radio]), select, dialog, [contenteditable]");
    if (report.state().view !== "example" || busy || event.ctrlKey || event.metaKey || event.altKey || !ACTIONS[event.key]) return;
    event.preventDefault();
    ACTIONS[event.key]();
  });

  report.views.example = {title: "Example", part: "examples", show, update, remade: (state) => `${state.task} ${state.n}`};
}
