// What everything on the page uses: the facts, elements made of text, numbers, colours, saving.

const facts = JSON.parse(document.getElementById("facts").textContent);
const layers = facts.layers;
const planned = layers.filter((layer) => layer.kept_because === null);

// Names come from outside: children are text nodes or elements, never markup.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const count = (value) => d3.format(",")(value);
const percent = (value, digits = 1) =>
  value === null || value === undefined ? "" : `${(100 * value).toFixed(digits)} %`;
const number = (value) => (Number.isInteger(value) ? count(value) : d3.format(".4~g")(value));

function bytes(value) {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : `${(value / 1e6).toFixed(2)} MB`;
}

// Okabe and Ito's colours: told apart with any colour vision, on light and on dark.
const palettes = {
  light: {
    ground: "#ffffff", ink: "#16202c", soft: "#5a6675", line: "#dde2e8", rest: "#cfd8e1",
    kept: "#0072b2", pruned: "#e8ecf0", protected: "#d55e00", chosen: "#d55e00", other: "#009e73",
    series: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#16202c"],
  },
  dark: {
    ground: "#171e26", ink: "#e7ecf2", soft: "#9dabba", line: "#2b3540", rest: "#3a4754",
    kept: "#56b4e9", pruned: "#2a343e", protected: "#ff9d4d", chosen: "#ff9d4d", other: "#3ecfa4",
    series: ["#56b4e9", "#ff9d4d", "#3ecfa4", "#e39bc4", "#f0e442", "#8fb8ff", "#e7ecf2"],
  },
};
const theme = {
  wish: "auto",
  printing: false,
  get name() {
    if (this.printing) return "light";
    if (this.wish !== "auto") return this.wish;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  },
};

function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// A cell that a spreadsheet would take for a formula is told to be text.
function csv(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : `${value}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function standalone(svg, title) {
  const copy = svg.cloneNode(true);
  const width = Number(svg.getAttribute("width"));
  const height = Number(svg.getAttribute("height"));
  const space = "http://www.w3.org/2000/svg";
  copy.setAttribute("xmlns", space);
  copy.setAttribute("viewBox", `0 -26 ${width} ${height + 26}`);
  copy.setAttribute("height", height + 26);
  copy.style.color = palettes.light.ink;
  copy.style.background = "#ffffff";
  copy.style.fontFamily = "system-ui, sans-serif";
  const paper = document.createElementNS(space, "rect");
  for (const [key, value] of Object.entries({ y: -26, width, height: height + 26, fill: "#fff" }))
    paper.setAttribute(key, value);
  const heading = document.createElementNS(space, "text");
  heading.setAttribute("x", 8);
  heading.setAttribute("y", -9);
  heading.setAttribute("style", "font: 600 13px system-ui, sans-serif");
  heading.setAttribute("fill", palettes.light.ink);
  heading.textContent = title;
  const style = copy.querySelector("style");
  copy.insertBefore(paper, style ? style.nextSibling : copy.firstChild);
  paper.after(heading);
  return { text: new XMLSerializer().serializeToString(copy), width, height: height + 26 };
}

async function pngOf({ text, width, height }) {
  const image = new Image();
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    image.src = address;
    await image.decode();
    const canvas = make("canvas", { width: width * 2, height: height * 2 });
    const brush = canvas.getContext("2d");
    brush.scale(2, 2);
    brush.drawImage(image, 0, 0, width, height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
