// What was gained and what it cost: headline, accuracy, retraining, repair, comparison, facts.

function headline() {
  const t = facts.totals;
  const cards = [];
  const card = (id, title, dense, left, show, extra) => {
    const share = left / dense;
    const fill = make("i");
    fill.style.width = `${Math.min(Math.max(100 * share, 0.5), 100)}%`;
    cards.push(make("div", { class: "card", id }, make("h3", {}, title),
      make("div", { class: "big" }, `${share > 1 ? "+" : "−"}${percent(Math.abs(1 - share))}`),
      make("div", { class: "meter", role: "img", "aria-label": `${percent(share)} left` }, fill),
      make("p", {}, `${show(dense)} → ${show(left)}`), extra ? make("p", {}, extra) : null));
  };
  card("card-weights", "Weights", t.weights, t.weights_kept, count,
    `${(t.weights / Math.max(t.weights_kept, 1)).toFixed(1)}× fewer`);
  card("card-macs", "Multiply-adds per image", t.macs, t.macs_kept, count,
    t.macs_compacted === undefined ? null : `dense library, compacted: ${count(t.macs_compacted)}`);
  if (t.bytes !== undefined)
    card("card-bytes", "Bytes of the weights", t.bytes, t.bytes_csr, bytes,
      `float32 → CSR; narrow indices: ${bytes(t.bytes_csr_narrow)}`);
  const dense = facts.accuracy.find((row) => row.step === "dense");
  const last = facts.accuracy.at(-1);
  if (last) {
    const lost = dense && last !== dense ? last.fraction - dense.fraction : null;
    cards.push(make("div", { class: "card", id: "card-accuracy" },
      make("h3", {}, `Accuracy, ${last.step}`),
      make("div", { class: "big" }, percent(last.fraction, 2)),
      make("p", {}, lost === null ? "" : `${lost < 0 ? "−" : "+"}${Math.abs(100 * lost).toFixed(2)} points against dense ${percent(dense.fraction, 2)}`),
      make("p", {}, `± ${percent(last.error, 2)} (standard error, ${count(last.n)} images)`)));
  }
  return make("div", { class: "cards" }, cards);
}

function drawAccuracy(width, colours) {
  const rows = facts.accuracy.map((row) => ({ ...row, value: 100 * row.fraction, off: 100 * row.error }));
  return Plot.plot({
    width, height: 44 + 40 * rows.length, marginLeft: 78, marginRight: 112, marginTop: 8,
    marginBottom: 34, style: plotStyle,
    x: { domain: [0, 100], grid: true, label: "accuracy →", tickFormat: (d) => `${d} %`, ticks: width < 500 ? 3 : 6 },
    y: { domain: rows.map((row) => row.step), label: null, padding: 0.3 },
    marks: [
      Plot.barX(rows, { x: "value", y: "step", fill: (d) => (d.step === "dense" ? colours.rest : colours.kept) }),
      Plot.ruleY(rows, { y: "step", x1: (d) => d.value - d.off, x2: (d) => d.value + d.off, stroke: colours.ink, strokeWidth: 2 }),
      Plot.text(rows, { x: (d) => d.value + d.off, y: "step", text: (d) => `${d.value.toFixed(2)} ± ${d.off.toFixed(2)}`, textAnchor: "start", dx: 10, fill: "currentColor", fontWeight: 600 }),
      Plot.ruleX([0]),
    ],
  });
}

function drawEpochs(lines) {
  return (width, colours) => {
    const rows = facts.epochs.flatMap((row) => Object.keys(lines)
      .filter((name) => row[name] !== null && row[name] !== undefined)
      .map((name) => ({ epoch: row.epoch, name, value: row[name] * lines[name].times })));
    const names = Object.keys(lines).filter((name) => rows.some((row) => row.name === name));
    const colour = (name) => colours.series[Object.keys(lines).indexOf(name)];
    const items = names.map((name) => ({ text: lines[name].text, colour: colour(name), shape: "line", dash: lines[name].dash }));
    return key(Plot.plot({
      width, height: 270, marginLeft: 48, marginTop: 34, marginBottom: 40, marginRight: 14, style: plotStyle,
      x: { label: "epoch →", ticks: Math.min(facts.epochs.length, 10), tickFormat: (d) => (Number.isInteger(d) ? `${d}` : "") },
      y: { label: null, grid: true, ticks: 6, tickFormat: (d) => `${number(d)}${lines[names[0]].unit}`, nice: true },
      marks: names.flatMap((name) => {
        const mine = rows.filter((row) => row.name === name);
        return [
          Plot.line(mine, { x: "epoch", y: "value", stroke: colour(name), strokeWidth: 2.2, strokeDasharray: lines[name].dash }),
          Plot.dot(mine, { x: "epoch", y: "value", fill: colour(name), r: 3.5, tip: { fill: colours.ground } }),
        ];
      }),
    }), items);
  };
}

function drawRepair(width, colours) {
  const names = facts.repair.layers.map((row) => row.name);
  const floor = 1e-6; // of the logarithmic axis; an error below it is as good as none
  const rows = facts.repair.layers.map((row, place) => ({
    ...row, place, before: Math.max(row.before ?? 1, floor), after: Math.max(row.after ?? 1, floor),
  }));
  const items = [
    { text: "masked", colour: colours.chosen, shape: "dot" }, { text: "repaired", colour: colours.kept, shape: "dot" },
  ];
  const bottom = axisSpace(width - 60, rows);
  return key(Plot.plot({
    width, height: 240 + bottom, marginLeft: 56, marginTop: 34, marginRight: 12, marginBottom: bottom, style: plotStyle,
    x: { ...layerAxis(width - 60, rows.map((_, index) => ({ index }))),
      tickFormat: (i) => ((width - 60) / rows.length >= 15 ? short(names[i], 18) : `${i + 1}`) },
    y: { type: "log", label: null, grid: true, ticks: [1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1], tickFormat: (d) => `${number(100 * d)} %` },
    marks: [
      Plot.ruleX(rows, { x: "place", y1: "after", y2: "before", stroke: colours.soft }),
      Plot.dot(rows, { x: "place", y: "before", fill: colours.chosen, r: 4 }),
      Plot.dot(rows, { x: "place", y: "after", fill: colours.kept, symbol: "square", r: 4 }),
      Plot.tip(rows, Plot.pointerX({
        x: "place", y: "before", fill: colours.ground, fontSize: 13,
        title: (d) => `${d.name}\nmasked ${percent(d.before, 2)}\nrepaired ${percent(d.after, 2)}`,
      })),
    ],
  }), items);
}

const stages = { masked: "masked", batchnorm: "BatchNorm re-estimated", repaired: "repaired", retrained: "retrained" };
const measured = (stage) => facts.compare.cells.some((cell) => cell[stage] !== undefined);

function drawCompare(stage) {
  return (width, colours) => {
    const cells = facts.compare.cells;
    const methods = [...new Set(cells.map((cell) => cell.method))];
    const dashes = [null, "7 3", "2 3", "9 3 2 3"];
    const look = (method) => {
      const at = methods.indexOf(method);
      return [colours.series[at % colours.series.length], dashes[Math.floor(at / colours.series.length) % 4] ?? dashes[at % 4]];
    };
    const items = methods.map((text) => ({ text: short(text, 28), colour: look(text)[0], dash: look(text)[1], shape: "line" }));
    const top = 16 + 17 * keyLines(items, width);
    return key(Plot.plot({
      width, height: 260 + top, marginLeft: 48, marginTop: top, marginBottom: 44, marginRight: 24, style: plotStyle,
      x: { label: "weights gone →", tickFormat: (d) => `${d} %`, ticks: 6, nice: true },
      y: { label: null, grid: true, tickFormat: (d) => `${d} %`, ticks: 6 },
      marks: [
        Plot.ruleY([100 * facts.compare.dense], { stroke: colours.soft, strokeDasharray: "2 3" }),
        ...methods.flatMap((method) => {
          const mine = cells.filter((cell) => cell.method === method);
          const [stroke, strokeDasharray] = look(method);
          const place = { x: (d) => 100 * d.pruned, y: (d) => 100 * d[stage] };
          return [
            Plot.line(mine, { ...place, stroke, strokeDasharray, strokeWidth: 2 }),
            Plot.dot(mine, { ...place, fill: stroke, r: 3.5, title: (d) => `${d.method}: ${percent(d[stage], 2)} at ${percent(d.pruned)}`, tip: { fill: colours.ground } }),
          ];
        }),
      ],
    }), items);
  };
}

function compareTable() {
  const share = (name, title) => ({ name, title, show: (d) => percent(d[name], 2) });
  return table({
    id: "comparison-table", caption: `Dense: ${percent(facts.compare.dense, 2)}`, rows: facts.compare.cells,
    columns: [
      { name: "method", title: "Method", text: true, class: "name" }, share("target", "Target"),
      share("pruned", "Weights gone"), share("macs", "MACs gone"),
      ...[["masked", "Masked"], ["batchnorm", "BatchNorm"], ["repaired", "Repaired"], ["retrained", "Retrained"]]
        .filter(([stage]) => measured(stage)).map(([stage, title]) => share(stage, title)),
      { name: "error", title: "±", show: (d) => percent(d.error, 2) },
    ],
  }).element;
}

function plainTable(id, caption, rows) {
  const words = (name) => rows.some((row) => typeof row[name] === "string");
  const all = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const names = [...all.filter(words), ...all.filter((name) => !words(name))];
  return table({
    id, caption, rows,
    columns: names.map((name) => ({
      name, title: name.replaceAll("_", " "), text: words(name),
      show: (d) => (typeof d[name] === "number" ? number(d[name]) : d[name] === null || d[name] === undefined ? "" : String(d[name])),
    })),
  }).element;
}

function provenance() {
  const list = make("dl", { class: "facts" });
  const add = (name, ...values) => list.append(make("dt", {}, name), make("dd", {}, ...values));
  if (facts.command) add("Command", make("pre", {}, make("code", { id: "command" }, facts.command)));
  const goal = facts.goal;
  if (goal.target !== null && goal.target !== undefined)
    add("Goal", `remove ${percent(goal.target)} of the ${goal.budget}`);
  if (goal.tolerance !== null && goal.tolerance !== undefined)
    add("Goal", `a layer may lose ${percent(goal.tolerance)} of its SVM accuracy`);
  if (goal.threshold !== null && goal.threshold !== undefined)
    add("SVM threshold", `${percent(goal.threshold, 2)} (${goal.reading})`);
  if (facts.facts.seed !== undefined) add("Seed", String(facts.facts.seed));
  const versions = facts.facts.versions ?? {};
  if (Object.keys(versions).length)
    add("Versions", Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", "));
  for (const [name, title] of [["model", "Weights, SHA-256"], ["images", "Calibration images, SHA-256"], ["scores", "Scores, SHA-256"]])
    if (facts.facts[name]) add(title, make("code", {}, String(facts.facts[name])));
  const options = Object.entries(facts.config).map(([name, value]) => ({ option: name, value: JSON.stringify(value) }));
  const more = options.length
    ? make("details", {}, make("summary", {}, "All options"), make("div", { class: "scroll" }, plainTable("options", "", options)))
    : null;
  return make("div", { class: "card" }, list, more);
}
