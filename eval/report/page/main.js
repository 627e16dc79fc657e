"use strict";
// Starts the page, and shows the view that the address names.
{
  const {el} = report;
  let shown = null; // the view on the page and what it cannot change without being made anew

  const menu = (state) => {
    const list = document.getElementById("menu");
    const {tables} = report.ready;
    const table = report.table(state)?.key ?? "";
    list.replaceChildren(...Object.entries(report.views).filter(([name, view]) => view.menu && (tables.length || name === "analyses")).map(([name, view]) =>
      el("a", {
        href: `#/${name}?${new URLSearchParams({table})}`,
        "aria-current": (view.part ?? name) === (report.views[state.view].part ?? state.view) ? "page" : null,
      }, view.title)));
    const here = list.querySelector("[aria-current]"); // where the menu is wider than the screen
    if (here) list.scrollLeft = here.offsetLeft - list.offsetLeft - (list.clientWidth - here.offsetWidth) / 2;
    const place = document.getElementById("which");
    const options = tables.map((table) => ({value: table.key, title: table.key.split("/").map((part) => part.replace(/^(data|model|protocol)\.(?=.*=)/, "")).join(" \u00b7 ")}));
    place.replaceChildren(...(tables.length ? [report.choice("table", "Data \u00b7 model \u00b7 preset", options, table,
      (table) => { location.hash = `#/${report.views[state.view].part ?? state.view}?${new URLSearchParams({table})}`; })] : []));
  };

  report.render = () => {
    if (!report.ready) return;
    const begun = performance.now();
    const state = report.state();
    const view = report.views[state.view];
    const page = document.getElementById("page");
    const key = `${state.view} ${report.table(state)?.key} ${view.remade?.(state) ?? ""}`;
    if (shown !== key || !view.update?.(state)) {
      const focused = document.activeElement?.id;
      const top = shown?.split(" ")[0] === state.view ? scrollY : 0;
      shown = key;
      menu(state);
      document.title = `${view.title} \u2013 EchoKV report`;
      const root = el("div", {class: `view ${state.view}`});
      page.replaceChildren(root);
      view.show(root, state);
      if (focused) document.getElementById(focused)?.focus({preventScroll: true});
      scrollTo(0, top);
    }
    performance.measure("render", {start: begun});
  };

  report.fail = (error) => {
    document.getElementById("page").replaceChildren(el("p", {class: "problem", role: "alert"}, error.message));
  };

  const themes = ["auto", "light", "dark"];
  const remember = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not from a disk */ } };
  const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const dress = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    button.textContent = {auto: "\u25d0", light: "\u25cb", dark: "\u25cf"}[theme];
    button.setAttribute("aria-label", `Colours: ${theme}. Change`);
    button.title = `Colours: ${theme}`;
  };

  /** Follow a report that is being written: its stamp changes with every build. */
  const follow = () => {
    if (!location.protocol.startsWith("http")) return;
    let stamp = report.data.get("stamp");
    setInterval(async () => {
      try {
        const now = await report.load("stamp", true);
        if (now === stamp) return;
        stamp = now;
        report.data.clear();
        await start();
        document.getElementById("news").textContent = `Updated ${new Date().toLocaleTimeString("en-GB")}`;
      } catch { /* the command has ended; what is shown stays */ }
    }, 3000);
  };

  const start = async () => {
    report.ready = await report.load("overview");
    shown = null;
    report.render();
  };

  addEventListener("hashchange", report.render);
  report.narrow.addEventListener("change", () => { // other things stand on a narrow page
    shown = null;
    report.render();
  });
  addEventListener("unhandledrejection", (event) => report.fail(event.reason));
  document.getElementById("theme").addEventListener("click", () => {
    const theme = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    remember(theme);
    dress(theme);
  });
  document.getElementById("skip").addEventListener("click", () => document.getElementById("page").focus());
  dress(themes.includes(remembered()) ? remembered() : "auto");
  start().then(() => {
    performance.measure("loaded");
    document.documentElement.dataset.loaded = "yes";
    return report.load("stamp");
  }).then(follow, report.fail);
}
