// A table that sorts by its headings, and the table of layers that also chooses one.

function table({ id, caption, columns, rows, row: decorate }) {
  const body = make("tbody");
  const state = { column: null, up: true };
  const heads = columns.map((column) => {
    const button = make("button", { type: "button", onclick: () => sort(column) }, column.title);
    return make("th", { scope: "col", class: column.text ? "text" : null, "aria-sort": "none" }, button);
  });
  const lines = rows.map((values) => {
    const line = make("tr", {}, columns.map((column) => {
      const shown = column.show ? column.show(values) : values[column.name];
      const classes = [column.text ? "text" : "", column.class ?? ""].join(" ").trim();
      return make("td", { class: classes || null }, shown ?? "");
    }));
    line.values = values;
    decorate?.(line, values);
    return line;
  });
  function sort(column) {
    state.up = state.column === column ? !state.up : Boolean(column.text || column.first);
    state.column = column;
    const of = (line) => line.values[column.name];
    const order = (a, b) => {
      if (of(a) === null || of(a) === undefined) return 1; // what is missing comes last
      if (of(b) === null || of(b) === undefined) return -1;
      const found = typeof of(a) === "string"
        ? of(a).localeCompare(of(b), undefined, { numeric: true }) : of(a) - of(b);
      return state.up ? found : -found;
    };
    lines.sort(order);
    body.append(...lines);
    columns.forEach((each, i) => heads[i].setAttribute("aria-sort",
      each === column ? (state.up ? "ascending" : "descending") : "none"));
  }
  body.append(...lines);
  const head = make("thead", {}, make("tr", {}, heads));
  const element = make("table", { id }, make("caption", { class: "soft text" }, caption), head, body);
  return { element, lines, body };
}

const pill = (level) => make("span", { class: `badge ${level}` }, level);
const meter = (share) => {
  const fill = make("i");
  fill.style.width = `${100 * share}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, fill);
};

function layerTable() {
  const columns = [
    { name: "index", title: "#", first: true, show: (d) => `${d.index + 1}` },
    { name: "name", title: "Layer", text: true, class: "name" },
    { name: "kind", title: "Kind", text: true },
    { name: "connections", title: "Filters × inputs", show: (d) => `${d.c_out} × ${d.c_in}` },
    { name: "pruned", title: "Connections gone",
      show: (d) => (d.kept_because === null ? [meter(d.pruned), percent(d.pruned)] : "kept whole") },
    { name: "limit", title: "Limit", show: (d) => percent(d.limit) },
    { name: "weights_kept", title: "Weights left",
      show: (d) => `${count(d.weights_kept)} of ${count(d.weights)}` },
    { name: "macs_kept", title: "MACs left",
      show: (d) => `${count(d.macs_kept)} of ${count(d.macs)}` },
    { name: "base", title: "SVM dense", show: (d) => percent(d.base) },
    { name: "safe", title: "Protected" },
    { name: "dead", title: "Dead" },
    { name: "trusted", title: "Scores", show: (d) => (d.trust && d.trust !== "none" ? pill(d.trust) : "") },
  ].filter((column) => column.name !== "trusted" || planned.some((d) => d.trust !== "none"));
  const rows = layers.map((d) => ({
    ...d, base: d.curve?.base ?? null, safe: d.protected?.length ?? null,
    trusted: { poor: 0, fair: 1, good: 2 }[d.trust] ?? null,
  }));
  const made = table({
    id: "layers", caption: "Choose a layer by click, or with the arrow keys.", columns, rows,
    row: (line, values) => {
      line.setAttribute("tabindex", "-1");
      line.setAttribute("aria-selected", "false");
      line.dataset.layer = values.index;
      line.addEventListener("click", () => {
        line.focus({ preventScroll: true });
        choose(values.index, "table");
      });
    },
  });
  // One stop of the tab key for the whole table; the arrows move inside it.
  made.body.addEventListener("keydown", (event) => {
    const lines = [...made.body.children];
    const at = lines.indexOf(event.target.closest("tr"));
    const to = {
      ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1, PageDown: at + 10,
      PageUp: at - 10, Enter: at, " ": at,
    }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const line = lines[Math.min(Math.max(to, 0), lines.length - 1)];
    line.focus();
    choose(line.values.index, "table");
  });
  chosen.listeners.push((layer, from) => {
    for (const line of made.lines) {
      const mine = line.values.index === layer.index;
      line.setAttribute("aria-selected", String(mine));
      line.setAttribute("tabindex", mine ? "0" : "-1");
      if (mine && from !== "table" && from !== "start") {
        const box = line.closest(".scroll"); // only the table scrolls, not the page
        box.scrollTop = line.offsetTop - box.clientHeight / 2;
      }
    }
  });
  const saved = rows.map((d) => ({
    layer: d.name, kind: d.kind, c_out: d.c_out, c_in: d.c_in, kernel: d.kernel,
    weights: d.weights, weights_kept: d.weights_kept, macs: d.macs, macs_kept: d.macs_kept,
    macs_compacted: d.macs_compacted, filters_left: d.filters_left, pruned: d.pruned,
    limit: d.limit, svm_dense: d.base, protected: d.safe, dead: d.dead,
    informative: d.occupancy?.informative, kept_because: d.kept_because,
  }));
  return { element: made.element, saved };
}

function savable(name, rows) {
  return make("button", {
    type: "button", class: "no-print",
    onclick: () => download(`${fileName(`${facts.name} ${name}`)}.csv`, "text/csv", csv(rows)),
  }, "Save table as CSV");
}
