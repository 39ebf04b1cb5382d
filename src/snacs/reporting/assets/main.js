// The page, put together from what the run has to show.

const main = document.getElementById("main");
const contents = document.getElementById("contents");

function section(id, title, words, ...children) {
  const heading = make("h2", { id: `${id}-title` }, title);
  main.append(make("section", { id, "aria-labelledby": `${id}-title` }, heading,
    words ? make("p", {}, words) : null, children));
  contents.append(make("a", { href: `#${id}` }, title));
}
const grid = (...children) => make("div", { class: "grid" }, children.filter(Boolean)
  .map((child) => child.figure ?? child));

document.getElementById("title").textContent = facts.name;
const totals = facts.totals;
document.getElementById("subtitle").textContent = layers.length
  ? `${percent(totals.pruned)} of the weights and ${percent(1 - totals.macs_kept / totals.macs)} of ` +
    `the multiply-adds are gone, from ${planned.length} of ${layers.length} layers.`
  : "Methods side by side on one network.";

if (layers.length) showOutcome();
if (layers.length) showNetwork();
if (planned.length) showLayers();
if (facts.epochs.length) showTraining();
if (facts.compare) showComparison();
showFacts();

function showOutcome() {
  const parts = [headline()];
  const drawn = [];
  if (facts.accuracy.length)
    drawn.push(chart({
      id: "accuracy", title: "Accuracy after each step", span: facts.bench.length ? 6 : 12,
      words: "On the test images of the run, which snacs uses for no choice; the line is one standard error to each side.",
      draw: drawAccuracy, rows: () => facts.accuracy,
    }));
  if (facts.bench.length)
    drawn.push(make("div", { class: "card span-6" }, make("h3", {}, "Latency, as measured"),
      make("div", { class: "scroll" }, plainTable("latency", "", facts.bench))));
  if (drawn.length) parts.push(make("div", { style: "height:14px" }), grid(...drawn));
  const notes = facts.notes.map((note) => make("p", { class: "warning" }, note));
  section("outcome", "Outcome", null, notes, parts);
}

function showNetwork() {
  const bars = chart({
    id: "compression", title: "What each layer loses",
    words: "Blue: connections gone, of all the layer has. The tick is the limit that was set for it. Click a bar to see why.",
    draw: drawCompression, rows: () => layers.map((d) => ({ layer: d.name, pruned: d.pruned, limit: d.limit, kept_because: d.kept_because })),
  });
  const costs = [
    ["weights", "weights_kept", "Weights per layer", "weights"], ["macs", "macs_kept", "Multiply-adds per layer", "multiply-adds"],
  ].map(([dense, kept, title, unit]) => chart({
    id: `cost-${dense}`, title, span: 6, draw: drawCost(dense, kept, unit),
    words: `Dense in grey, left in blue, per image.`.replace(dense === "weights" ? ", per image" : "\0", ""),
    rows: () => layers.map((d) => ({ layer: d.name, [dense]: d[dense], [kept]: d[kept] })),
  }));
  const flow = chart({
    id: "flow", title: "The network as it flows, and how thick it still is", draw: drawFlow,
    words: "Each column is a layer, as tall as it has filters (square-root scale); filled is the share of its connections that is left.",
    rows: () => layers.map((d) => ({ layer: d.name, filters: d.c_out, filters_left: d.filters_left, connections_left: d.weights_kept / d.weights })),
  });
  section("network", "Network", "Which layers were pruned, how far, and what that saves.", grid(bars, ...costs, flow));
  const alone = [
    ...layers.filter((d) => d.kept_because !== null).map((d) => ({ layer: d.name, kind: d.kind, weights: d.weights, why: d.kept_because })),
    ...facts.left_alone.map((d) => ({ layer: d.name, kind: d.kind, weights: null, why: d.reason })),
  ];
  if (alone.length)
    section("alone", "Left alone", "These layers keep all their weights, for the reason given.",
      make("div", { class: "scroll" }, plainTable("alone-table", "", alone)));
}

function showLayers() {
  const { element, saved } = layerTable();
  const title = make("h2", { id: "chosen-title", "aria-live": "polite" });
  const picker = make("select", { id: "picker", class: "no-print", "aria-label": "Layer", onchange: () => choose(Number(picker.value), "picker") },
    layers.map((d) => make("option", { value: d.index }, d.name)));
  const step = (by) => () => {
    const at = planned.indexOf(layers[chosen.index]) + by;
    choose(planned[(at + planned.length) % planned.length].index, "buttons");
  };
  const tools = make("div", { class: "chosen" }, title,
    make("button", { type: "button", class: "no-print", id: "previous", onclick: step(-1) }, "← Previous"), picker,
    make("button", { type: "button", class: "no-print", id: "next", onclick: step(1) }, "Next →"));
  const why = make("ul", { class: "why", id: "why" });
  const trusted = make("p", { class: "warning", id: "trust" });
  const shown = {
    scores: chart({ id: "scores", title: "Scores", span: 4, draw: drawMatrix("scores", readScore), rows: () => matrixRows("scores") }),
    mask: chart({ id: "mask", title: "Mask", span: 4, draw: drawMatrix("mask", readMask), rows: () => matrixRows("mask") }),
    histogram: chart({ id: "histogram", title: "Scores and the cut", span: 4, draw: drawHistogram, rows: histogramRows }),
    curve: chart({ id: "curve", title: "SVM curve", span: 8, draw: drawLayerCurve, rows: layerCurveRows }),
    occupancy: chart({ id: "occupancy", title: "Cells of the estimate", span: 4, draw: drawOccupancy, rows: occupancyRows }),
  };
  for (const kind of ["scores", "mask"]) shown[kind].figure.append(readouts[kind]);
  const panel = make("div", { id: "panel" }, why, trusted, grid(...Object.values(shown)));
  section("each", "Layers", null, make("div", { class: "scroll" }, element),
    make("p", {}, savable("layers", saved)), tools, panel);

  const kinds = [curved.length ? "curves" : null, "mask", "scores"].filter(Boolean);
  const names = { curves: "SVM curves", mask: "Masks", scores: "Scores" };
  const all = curved.length ? chart({
    id: "curves", draw: drawCurves, rows: curveRows,
    title: facts.goal.threshold === null ? "All SVM curves" : "All SVM curves and the one threshold",
    words: facts.goal.threshold === null
      ? "How well an SVM reads the classes from each layer as its connections go. No limit depends on it here; the dot: its limit."
      : relative
      ? "Accuracy relative to the unpruned layer. Each layer may lose as much as its curve stays above the threshold: the dot."
      : "Each layer may lose as much as its curve stays above the threshold: the dot.",
  }) : null;
  let kind = kinds[0];
  const gallery = chart({
    id: "gallery", title: `${names[kind]} of every layer`, draw: (...how) => drawGallery(kind)(...how),
    rows: () => (kind === "curves" ? curveRows() : planned.map((d) => ({ layer: d.name, pruned: d.pruned, protected: d.protected.join(" ") }))),
  });
  const told = {
    curves: "Blue: SVM accuracy as connections go. Dotted: what is asked of the layer. Orange: its limit. Shaded: what went.",
    mask: "Rows are filters, columns input channels. Blue: kept. Orange: kept because the filter is protected.",
    scores: "Rows are filters, columns input channels. Bright: carries much; each layer has its own scale.",
  };
  gallery.retitle(gallery.title, told[kind]);
  const buttons = kinds.map((each) => make("button", {
    type: "button", "aria-pressed": String(each === kind), onclick: () => {
      kind = each;
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(kinds[i] === kind)));
      gallery.retitle(`${names[kind]} of every layer`, told[kind]);
      gallery.again();
    },
  }, names[each]));
  section("all", "All layers", "Click a layer to see it above.",
    grid(all), make("div", { style: "height:14px" }), make("div", { class: "switch no-print", role: "group", "aria-label": "What to show" }, buttons), grid(gallery));

  chosen.listeners.push((layer) => {
    title.textContent = layer.name;
    picker.value = layer.index;
    why.replaceChildren(...(layer.why ?? [`Kept whole: ${layer.kept_because}.`]).map((text) => make("li", {}, text)));
    const doubtful = layer.trust === "fair" || layer.trust === "poor";
    trusted.hidden = !doubtful;
    trusted.textContent = layer.trust_words ?? "";
    const whole = layer.kept_because === null;
    for (const each of Object.values(shown)) each.figure.hidden = !whole;
    if (whole) {
      for (const kind of ["scores", "mask"]) greys(layer, kind); // so that printing need not wait
      const large = (kind) => (layer[kind].tall * layer[kind].wide > 1
        ? ` Shown as means of ${layer[kind].tall} × ${layer[kind].wide} blocks; every value is in plan/arrays.npz.` : "");
      shown.scores.retitle("Scores", `How much each connection carries; low goes first. Rows are filters.${large("scores")}`);
      shown.mask.retitle("Mask", `${count(layer.connections - layer.weights_kept / layer.kernel)} of ${count(layer.connections)} connections gone; ` +
        `protected filters: ${layer.protected.length}.${large("mask")}`);
      shown.histogram.retitle("Scores and the cut", "How many connections have which score (square-root scale), and from where on they stay.");
      shown.curve.figure.hidden = !layer.curve;
      shown.curve.retitle("SVM curve", "How well an SVM reads the classes from this layer as its connections go.");
      shown.occupancy.figure.hidden = !("informative" in layer.occupancy);
      shown.occupancy.retitle("Cells of the estimate", layer.trust_words);
      for (const each of Object.values(shown)) each.again();
    }
    all?.again();
    gallery.again();
  });
  const most = planned.reduce((a, b) => (b.pruned > a.pruned ? b : a));
  choose(most.index, "start");
}

function showTraining() {
  const accuracy = chart({
    id: "training-accuracy", title: "Accuracy while retraining", span: 6, rows: () => facts.epochs,
    words: "With the masks on; training images are augmented.",
    draw: drawEpochs({ accuracy: { text: "training", times: 100, unit: " %" }, validation: { text: "validation", times: 100, unit: " %", dash: "6 3" } }),
  });
  const loss = chart({
    id: "training-loss", title: "Loss while retraining", span: 6, rows: () => facts.epochs,
    words: "Mean over each epoch.", draw: drawEpochs({ loss: { text: "training", times: 1, unit: "" } }),
  });
  section("training", "Retraining", null, grid(accuracy, loss));
}

function showComparison() {
  const drawn = Object.entries(stages).filter(([stage]) => measured(stage)).map(([stage, words]) => chart({
    id: `compare-${stage}`, title: `Accuracy, ${words}`, span: 4, draw: drawCompare(stage), rows: () => facts.compare.cells,
    words: "The dotted line is the dense network.",
  }));
  section("comparison", "Comparison", "Several methods on the same network, images and targets.",
    grid(...drawn), make("div", { style: "height:14px" }), make("div", { class: "scroll" }, compareTable()),
    make("p", {}, savable("comparison", facts.compare.cells)));
}

function showFacts() {
  if (facts.repair?.layers.length) {
    const steps = facts.repair.steps.map((row) => ({ step: row.name, KL_before: row.before, KL_after: row.after, kept: row.kept ? "yes" : "no", seconds: row.seconds }));
    const errors = chart({
      id: "repair", title: "Error of each layer's output, masked and repaired", draw: drawRepair,
      words: "Squared, relative to the dense output, on the calibration images.", rows: () => facts.repair.layers,
    });
    section("repairs", "Repair", "Kept weights are solved anew so that every layer returns what the dense one returns.",
      grid(errors), make("div", { style: "height:14px" }),
      make("div", { class: "scroll" }, plainTable("repair-table", "KL(dense ‖ pruned) in nats per image, before and after each step", steps)));
  }
  section("facts-section", "How it was made", null, provenance());
}

const button = document.getElementById("theme");
function applyTheme() {
  document.documentElement.dataset.theme = theme.name;
  button.textContent = theme.name === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  return redraw();
}
button.addEventListener("click", () => {
  theme.wish = theme.name === "dark" ? "light" : "dark";
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
document.getElementById("print").addEventListener("click", () => window.print());
function printing(on) {
  theme.printing = on;
  if (on) for (const each of charts) if (!each.figure.hidden) each.wake();
  return applyTheme();
}
window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));
applyTheme();
